-- Takes a store of an earlier form to the present one: in form 1 the wide tables were WITHOUT ROWID, and before form 4
-- nothing was archived. Runs in one transaction, with the schema between the two parts; a crash leaves all as it was.

ALTER TABLE instances RENAME TO old_instances;
ALTER TABLE history RENAME TO old_history;
ALTER TABLE entities RENAME TO old_entities;

DROP INDEX IF EXISTS instances_by_creation;
DROP INDEX IF EXISTS instances_by_completion;
DROP INDEX IF EXISTS instances_unfinished;
DROP INDEX IF EXISTS instances_ended_badly;
DROP INDEX IF EXISTS instances_by_parent;

-- schema

INSERT INTO instances SELECT *, NULL FROM old_instances ORDER BY created_us;
INSERT INTO history SELECT * FROM old_history;
INSERT INTO entities SELECT * FROM old_entities;

DROP TABLE old_instances;
DROP TABLE old_history;
DROP TABLE old_entities;

-- Takes a store of form 1, whose wide tables were WITHOUT ROWID, to the present form. Runs in one transaction, with the
-- schema between the two parts; a crash leaves form 1 behind.

ALTER TABLE instances RENAME TO old_instances;
ALTER TABLE history RENAME TO old_history;
ALTER TABLE entities RENAME TO old_entities;

DROP INDEX instances_by_creation;
DROP INDEX instances_by_completion;
DROP INDEX instances_unfinished;
DROP INDEX instances_ended_badly;
DROP INDEX instances_by_parent;

-- schema

INSERT INTO instances SELECT * FROM old_instances ORDER BY created_us;
INSERT INTO history SELECT * FROM old_history;
INSERT INTO entities SELECT * FROM old_entities;

DROP TABLE old_instances;
DROP TABLE old_history;
DROP TABLE old_entities;

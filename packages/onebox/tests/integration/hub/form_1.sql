-- The tables of the store's form 1 that later forms have in another way, and what takes a store back to it.

ALTER TABLE instances RENAME TO new_instances;
ALTER TABLE history RENAME TO new_history;
ALTER TABLE entities RENAME TO new_entities;

DROP INDEX instances_by_creation;
DROP INDEX instances_by_completion;
DROP INDEX instances_unfinished;
DROP INDEX instances_ended_badly;
DROP INDEX instances_to_archive;

CREATE TABLE instances (
    id                  TEXT PRIMARY KEY,
    execution_id        TEXT NOT NULL,
    turn                INTEGER NOT NULL,
    name                TEXT NOT NULL,
    version             TEXT,
    status              INTEGER NOT NULL,
    input               TEXT,
    output              TEXT,
    custom_status       TEXT,
    failure             BLOB,
    tags                TEXT,
    parent_id           TEXT,
    parent_execution_id TEXT,
    parent_task_id      INTEGER,
    created_us          INTEGER NOT NULL,
    updated_us          INTEGER NOT NULL,
    scheduled_us        INTEGER,
    completed_us        INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    instance_id TEXT NOT NULL,
    turn        INTEGER NOT NULL,
    events      BLOB NOT NULL,
    PRIMARY KEY (instance_id, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE entities (
    id           TEXT PRIMARY KEY,
    state        TEXT,
    lock_owner   TEXT,
    lock_section TEXT,
    modified_us  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX instances_by_creation ON instances (created_us, id);

CREATE INDEX instances_by_completion ON instances (completed_us, id) WHERE completed_us IS NOT NULL;

CREATE INDEX instances_unfinished ON instances (created_us, id) WHERE completed_us IS NULL;

CREATE INDEX instances_ended_badly ON instances (created_us, id) WHERE status IN (3, 4, 5);

CREATE INDEX instances_by_parent ON instances (parent_id) WHERE parent_id IS NOT NULL;

INSERT INTO instances
SELECT id, execution_id, turn, name, version, status, input, output, custom_status, failure, tags, parent_id,
       parent_execution_id, parent_task_id, created_us, updated_us, scheduled_us, completed_us
FROM new_instances;
INSERT INTO history SELECT * FROM new_history;
INSERT INTO entities SELECT * FROM new_entities;

DROP TABLE new_instances;
DROP TABLE new_history;
DROP TABLE new_entities;
DROP TABLE archives;

PRAGMA user_version = 1;

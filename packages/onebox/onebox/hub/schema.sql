-- The task hub's tables. Instants are whole microseconds since 1970 (UTC); protobuf is stored serialised.
-- None is WITHOUT ROWID: its rows would lie in the key's own tree, where wide ones are rewritten with their
-- neighbours, and where a scan reads all of every row.

CREATE TABLE IF NOT EXISTS instances (
    id                  TEXT PRIMARY KEY,
    execution_id        TEXT NOT NULL,     -- new at each (re)start, continue-as-new and rewind; fences late results
    turn                INTEGER NOT NULL,  -- turns committed in this execution; fences a turn that ran twice
    name                TEXT NOT NULL,
    version             TEXT,
    status              INTEGER NOT NULL,  -- the protocol's OrchestrationStatus
    input               TEXT,
    output              TEXT,
    custom_status       TEXT,
    failure             BLOB,              -- TaskFailureDetails
    tags                TEXT,              -- JSON object
    parent_id           TEXT,
    parent_execution_id TEXT,
    parent_task_id      INTEGER,
    created_us          INTEGER NOT NULL,
    updated_us          INTEGER NOT NULL,
    scheduled_us        INTEGER,           -- asked not to start before; null starts at once
    completed_us        INTEGER,
    archive             INTEGER            -- archives.seq; then input, output and custom_status are null
) STRICT;

CREATE INDEX IF NOT EXISTS instances_by_creation ON instances (created_us, id);
CREATE INDEX IF NOT EXISTS instances_by_completion ON instances (completed_us, id) WHERE completed_us IS NOT NULL;
-- What goes on is few among what has ended, and so is what ended badly: a list of either does not pass the others.
CREATE INDEX IF NOT EXISTS instances_unfinished ON instances (created_us, id) WHERE completed_us IS NULL;
-- A range, since SQLite builds a table for IN, each time that it writes a row.
CREATE INDEX IF NOT EXISTS instances_unsuccessful ON instances (created_us, id) WHERE status BETWEEN 3 AND 5;
CREATE INDEX IF NOT EXISTS instances_to_archive ON instances (completed_us) WHERE completed_us IS NOT NULL AND archive IS NULL;

-- One row per committed turn: its events, each framed as an OrchestratorRequest.pastEvents element, so that the
-- next turn's request is built by joining rows; long ones are packed with zlib.
CREATE TABLE IF NOT EXISTS history (
    instance_id TEXT NOT NULL,
    turn        INTEGER NOT NULL,
    events      BLOB NOT NULL,
    PRIMARY KEY (instance_id, turn)
) STRICT;

-- What is left of instances that ended some seconds ago, packed (see archive.py). A table of its own: rows of one
-- size, written once, fill their pages, which a row that shrinks in its place does not.
CREATE TABLE IF NOT EXISTS archives (
    seq    INTEGER PRIMARY KEY,
    packed BLOB NOT NULL
) STRICT;

-- The inbox of every instance and entity. A timer is a message that is not visible before it is due, so firing
-- one writes nothing: it only wakes its target.
CREATE TABLE IF NOT EXISTS messages (
    seq          INTEGER PRIMARY KEY,
    target       TEXT NOT NULL,     -- instance id, or entity id ("@name@key")
    execution_id TEXT,              -- the execution that it answers; null is for whichever runs
    kind         TEXT NOT NULL,     -- what it asks for; see model.Kind
    delayed      INTEGER NOT NULL,  -- 1 = not visible before due_us
    due_us       INTEGER NOT NULL,  -- when it arrived, or will
    events       BLOB NOT NULL      -- framed like history.events; empty for a bare wake-up
) STRICT;

CREATE INDEX IF NOT EXISTS messages_by_target ON messages (target, due_us, seq);
CREATE INDEX IF NOT EXISTS messages_by_due ON messages (due_us) WHERE delayed = 1;

-- Activity tasks whose result is not yet in their orchestration's inbox. The lock file is their lease: whoever
-- serves this hub owns all of them, and a start redelivers every row.
CREATE TABLE IF NOT EXISTS activities (
    seq          INTEGER PRIMARY KEY,
    instance_id  TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    task_id      INTEGER NOT NULL,
    name         TEXT NOT NULL,
    input        TEXT,
    lane         INTEGER NOT NULL   -- priority; see model.Lane
) STRICT;

CREATE INDEX IF NOT EXISTS activities_by_instance ON activities (instance_id);

-- On Azure Storage's terms only (see dead_host.py): when the host was last alive, no row after a stop in order; and
-- the activities that a dead host had fetched, each until it is visible again.
CREATE TABLE IF NOT EXISTS host_lives (
    host     INTEGER PRIMARY KEY CHECK (host = 1),
    alive_us INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS hidden_activities (
    seq      INTEGER PRIMARY KEY,
    until_us INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS entities (
    id           TEXT PRIMARY KEY,
    state        ANY,               -- null: it has none (never set, or deleted); a long one is packed, a blob
    lock_owner   TEXT,              -- the orchestration inside a critical section on it
    lock_section TEXT,              -- that critical section's id
    modified_us  INTEGER NOT NULL
) STRICT;

-- Every statement of the task hub. Statuses: 0 running, 1 completed, 3 failed, 4 cancelled, 5 terminated,
-- 6 pending, 7 suspended. An instance takes messages unless it is completed, cancelled or terminated; a failed
-- one keeps them for a rewind.

-- name: instance.insert
-- A new instance, waiting for its first turn.
INSERT INTO instances (id, execution_id, turn, name, version, status, input, tags, parent_id, parent_execution_id,
                       parent_task_id, created_us, updated_us, scheduled_us)
VALUES (?, ?, 0, ?, ?, 6, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: instance.status
-- What an instance is doing; no row means that there is none.
SELECT status FROM instances WHERE id = ?;

-- name: instance.head
-- What a turn needs of its instance.
SELECT execution_id, turn, name, version, status, input, tags, parent_id, parent_execution_id, parent_task_id
FROM instances WHERE id = ?;

-- name: instance.get
-- All of an instance; its archive has its history and three of the columns.
SELECT id, execution_id, name, version, status, input, output, custom_status, failure, tags, parent_id, created_us,
       updated_us, scheduled_us, completed_us, (SELECT packed FROM archives WHERE seq = archive)
FROM instances WHERE id = ?;

-- name: instance.newest
-- At start: when the newest instance was changed that goes on, or when one was made or ended after that.
SELECT max(coalesce((SELECT max(updated_us) FROM instances WHERE completed_us IS NULL), 0),
           coalesce((SELECT max(created_us) FROM instances), 0),
           coalesce((SELECT max(completed_us) FROM instances WHERE completed_us IS NOT NULL), 0));

-- name: instance.delete
-- One instance's row.
DELETE FROM instances WHERE id = ?;

-- name: instance.finish
-- Ends an instance that never ran.
UPDATE instances SET status = ?, output = ?, updated_us = ?, completed_us = ? WHERE id = ?;

-- name: instance.reopen
-- Takes a failed instance back into service, to be rewound by its next turn.
UPDATE instances SET status = 0, output = NULL, failure = NULL, completed_us = NULL, updated_us = ? WHERE id = ?;

-- name: instance.adopt
-- A child follows its parent's new execution, so that its end is not taken for a late one. A turn of it that is
-- running now would still report to the old one: it is fenced off and runs again (turn 0 means never ran, and stays).
UPDATE instances SET parent_execution_id = ?, turn = CASE turn WHEN 0 THEN 0 ELSE turn + 1 END
WHERE id = ? AND parent_id = ?;

-- name: turn.advance
-- The state after a turn; no row changes when another turn, or a new execution, has overtaken it.
UPDATE instances
SET turn = turn + 1, status = ?, output = ?, custom_status = ?, failure = ?, updated_us = ?, completed_us = ?
WHERE id = ? AND execution_id = ? AND turn = ?;

-- name: turn.renew
-- The state after continue-as-new: a new execution that has not run; fenced like turn.advance.
UPDATE instances
SET execution_id = ?, turn = 0, status = 0, version = ?, input = ?, output = NULL, custom_status = ?,
    failure = NULL, updated_us = ?
WHERE id = ? AND execution_id = ? AND turn = ?;

-- name: turn.rewind
-- The state after a rewind: a new execution with a rewritten history of one turn; fenced like turn.advance.
UPDATE instances
SET execution_id = ?, turn = 1, status = 0, output = NULL, failure = NULL, completed_us = NULL, updated_us = ?
WHERE id = ? AND execution_id = ? AND turn = ?;

-- name: history.append
-- The events of one turn.
INSERT INTO history (instance_id, turn, events) VALUES (?, ?, ?);

-- name: history.read
-- All events of the present execution, in order.
SELECT events FROM history WHERE instance_id = ? ORDER BY turn;

-- name: history.all
-- The same of an instance that may have ended: its archive alone, or its rows.
SELECT 0 AS turn, packed AS events, 1 FROM archives WHERE seq = (SELECT archive FROM instances WHERE id = ?1)
UNION ALL SELECT turn, events, 0 FROM history WHERE instance_id = ?1 ORDER BY turn;

-- name: history.delete
-- Forgets all events of an instance.
DELETE FROM history WHERE instance_id = ?;

-- name: message.post_to_instance
-- A message for an instance, if it is there, takes messages, and still runs the execution that is meant (null: any).
INSERT INTO messages (seq, target, execution_id, kind, delayed, due_us, events)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
WHERE EXISTS (SELECT 1 FROM instances WHERE id = ?2 AND status <> 1 AND status NOT BETWEEN 4 AND 5
              AND (?3 IS NULL OR execution_id = ?3));

-- name: message.post_to_entity
-- A message for an entity, which need not exist yet.
INSERT INTO messages (seq, target, execution_id, kind, delayed, due_us, events) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: message.visible
-- What a target may see now, in order of arrival; a timer arrives when it is due.
SELECT seq, kind, due_us, events, execution_id FROM messages
WHERE target = ? AND (delayed = 0 OR due_us <= ?) ORDER BY due_us, seq LIMIT ?;

-- name: message.delete
-- One message that has been dealt with.
DELETE FROM messages WHERE seq = ?;

-- name: message.delete_all
-- Every message of a target.
DELETE FROM messages WHERE target = ?;

-- name: message.delete_execution
-- The answers and timers of an execution that is over.
DELETE FROM messages WHERE target = ? AND execution_id = ?;

-- name: message.move_execution
-- The answers and timers of an execution that goes on under a new id.
UPDATE messages SET execution_id = ? WHERE target = ? AND execution_id = ?;

-- name: message.move
-- One message comes at another instant, after those that arrive before then.
UPDATE messages SET due_us = ? WHERE seq = ?;

-- name: message.ready
-- At start: every target with a visible message, and whether it has never run.
SELECT target, max(kind = 'start') FROM messages WHERE delayed = 0 OR due_us <= ? GROUP BY target ORDER BY min(seq);

-- name: message.timers
-- The next timers after an instant, a bounded number, never splitting those of one instant.
SELECT due_us, target FROM messages
WHERE delayed = 1 AND due_us > ?1
  AND due_us <= coalesce((SELECT due_us FROM messages WHERE delayed = 1 AND due_us > ?1
                          ORDER BY due_us LIMIT 1 OFFSET ?2), 9223372036854775807);

-- name: message.arrived
-- At start, after the clock was ahead: what has arrived did so before what arrives from now on.
UPDATE messages SET due_us = ?1 WHERE delayed = 0 AND due_us > ?1;

-- name: timer.of_later_turns
-- At start, after the clock was ahead: the timers of what had a turn meanwhile.
SELECT seq, target, due_us, events FROM messages
WHERE delayed = 1 AND due_us > ?1 AND kind = 'result'
  AND EXISTS (SELECT 1 FROM instances WHERE id = target AND updated_us > ?1);

-- name: message.last_seq
-- The highest number given to a message.
SELECT coalesce(max(seq), 0) FROM messages;

-- name: activity.insert
-- An activity to run.
INSERT INTO activities (seq, instance_id, execution_id, task_id, name, input, lane) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: activity.get
-- One activity.
SELECT instance_id, execution_id, task_id, name, input, lane FROM activities WHERE seq = ?;

-- name: activity.take
-- Removes an activity whose result is being stored, and says whose it is; no row when that has happened before.
DELETE FROM activities WHERE seq = ? RETURNING instance_id, execution_id, task_id;

-- name: activity.ready
-- At start: all that has no stored result.
SELECT seq, lane FROM activities ORDER BY seq;

-- name: activity.move_execution
-- Activities of an execution that goes on under a new id.
UPDATE activities SET execution_id = ? WHERE instance_id = ? AND execution_id = ?;

-- name: activity.delete_all
-- Activities of an instance that is being erased.
DELETE FROM activities WHERE instance_id = ?;

-- name: activity.last_seq
-- The highest number given to an activity.
SELECT coalesce(max(seq), 0) FROM activities;

-- name: entity.get
-- One entity.
SELECT id, state, lock_owner, lock_section, modified_us FROM entities WHERE id = ?;

-- name: entity.shown
-- One entity as clients see it, with how many operations wait for it, if it has a state or is locked.
SELECT id, state, lock_owner, modified_us,
       (SELECT count(*) FROM messages WHERE target = entities.id AND kind = 'operation')
FROM entities WHERE id = ? AND (state IS NOT NULL OR lock_owner IS NOT NULL);

-- name: entity.put
-- An entity's state after a batch.
INSERT INTO entities (id, state, lock_owner, lock_section, modified_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, lock_owner = excluded.lock_owner,
    lock_section = excluded.lock_section, modified_us = excluded.modified_us;

-- name: entity.delete
-- One entity's row.
DELETE FROM entities WHERE id = ?;

-- name: entity.delete_empty
-- Entities without state, lock or waiting operations.
DELETE FROM entities WHERE state IS NULL AND lock_owner IS NULL
AND NOT EXISTS (SELECT 1 FROM messages WHERE target = entities.id);

-- name: entity.orphans
-- Entities whose lock owner is gone or finished.
SELECT id FROM entities WHERE lock_owner IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM instances WHERE instances.id = entities.lock_owner AND status IN (0, 6, 7));

-- name: instance.lives
-- One row for an instance that has not ended.
SELECT 1 FROM instances WHERE id = ? AND status IN (0, 6, 7);

-- name: entity.release
-- Takes the lock off an entity.
UPDATE entities SET lock_owner = NULL, lock_section = NULL WHERE id = ?;

-- name: message.scheduled_start
-- Whether a target waits for a start that is not due yet.
SELECT 1 FROM messages WHERE target = ? AND kind = 'start' AND delayed = 1 AND due_us > ? LIMIT 1;

-- name: instance.result
-- How a finished instance ended.
SELECT output, failure FROM instances WHERE id = ?;

-- name: instance.to_archive
-- What has ended and is not packed.
SELECT id, execution_id, completed_us, input, output, custom_status FROM instances
WHERE archive IS NULL AND completed_us IS NOT NULL ORDER BY completed_us LIMIT ?;

-- name: instance.archive
-- Leaves to an archive what it holds; no row changes when the instance has begun anew. The row is written anew, behind
-- the last: one that shrinks in its place leaves its page half empty.
REPLACE INTO instances
SELECT id, execution_id, turn, name, version, status, NULL, NULL, NULL, failure, tags, parent_id, parent_execution_id,
       parent_task_id, created_us, updated_us, scheduled_us, completed_us, ?
FROM instances WHERE id = ? AND execution_id = ? AND completed_us = ? AND archive IS NULL;

-- name: instance.unarchive
-- Takes back from an archive what it held.
UPDATE instances SET archive = NULL, input = ?, output = ?, custom_status = ? WHERE id = ?;

-- name: archive.insert
-- What is left of a finished instance.
INSERT INTO archives (packed) VALUES (?);

-- name: archive.read
-- The archive of an instance; no row when it has none.
SELECT packed FROM archives WHERE seq = (SELECT archive FROM instances WHERE id = ?);

-- name: archive.delete
-- Erases the archive of an instance.
DELETE FROM archives WHERE seq = (SELECT archive FROM instances WHERE id = ?);

-- name: archive.drop
-- Erases an archive that no instance has.
DELETE FROM archives WHERE seq = ?;

-- name: host.alive
-- The host lives.
INSERT INTO host_lives (host, alive_us) VALUES (1, ?) ON CONFLICT (host) DO UPDATE SET alive_us = excluded.alive_us;

-- name: host.last_alive
-- When a host that has not stopped in order was last alive.
SELECT alive_us FROM host_lives WHERE host = 1;

-- name: host.stopped
-- The host has stopped in order.
DELETE FROM host_lives WHERE host = 1;

-- name: message.hide
-- At start: hides what a dead host had fetched for so long after it arrived, unless that is over.
UPDATE messages SET delayed = 1, due_us = due_us + ?1 WHERE due_us <= ?2 AND due_us + ?1 > ?3;

-- name: activity.hide
-- At start: hides as many activities as a dead host had fetched, until an instant; what was hidden when it died stays so.
INSERT INTO hidden_activities (seq, until_us)
SELECT seq, ?1 FROM activities WHERE seq NOT IN (SELECT seq FROM hidden_activities WHERE until_us > ?2)
ORDER BY seq LIMIT ?3
ON CONFLICT (seq) DO UPDATE SET until_us = excluded.until_us;

-- name: activity.show
-- At start: forgets activities that are visible again, or are done.
DELETE FROM hidden_activities WHERE until_us <= ? OR seq NOT IN (SELECT seq FROM activities);

-- name: activity.hidden
-- At start: until when which activities are hidden.
SELECT seq, until_us FROM hidden_activities;

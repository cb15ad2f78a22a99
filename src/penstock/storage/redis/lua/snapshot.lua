#!lua flags=no-writes
-- A queue and its dead-letter queue without their messages, as of one moment, for the archive.
--
-- KEYS[1]  the queue's hash; reads the keys of its subscriptions, its :pins, and those of its
--          dead-letter queue
-- ARGV[1]  the id of the queue of which the server has a snapshot, or empty
-- ARGV[2]  the time of that snapshot in microseconds
-- Returns  see lib/snapshot.lua
-- uses: snapshot
local known = redis.call('HMGET', KEYS[1], 'id', 'now')
local since = tonumber(ARGV[2])
-- The time of a queue never runs backwards, unless it was rebuilt where the clock is behind.
if known[1] ~= ARGV[1] or since > tonumber(known[2]) then
  since = nil
end
return snapshot(KEYS[1], since)

#!lua flags=allow-oom
-- Deletes a queue with its messages, subscriptions, dead letters and events.
--
-- KEYS[1]  the queue's hash; removes all keys of the queue, its dead-letter and its events queue; if
--          alone, its :stream becomes its :former
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  alone if it is to be restored, and the events queue stays; or empty
-- Returns  ok; and if alone, its state at that moment, see lib/snapshot.lua
-- uses: runs queue reader family snapshot
local q, refusal = begin()
if not q then
  return refusal
end
local state
redis.call('UNLINK', q.key .. ':former')
if ARGV[3] == 'alone' then
  state = snapshot(q.key)
  if redis.call('EXISTS', q.stream) == 1 then
    redis.call('RENAME', q.stream, q.key .. ':former')
  end
end
local queues = {q}
local events = load_queue(q.key .. '-events')
if events and events.observed ~= '' and ARGV[3] ~= 'alone' then
  queues[2] = events
end
for _, one in ipairs({unpack(queues)}) do
  if one.dlq ~= '' then
    queues[#queues + 1] = load_queue(one.key .. '-dlq')
  end
end
for _, one in ipairs(queues) do
  for _, name in ipairs(words(one.subs)) do
    drop_keys(one.key .. ':s:' .. name, READER_KEYS)
  end
  -- What a server left that was filtering messages for a new subscription.
  drop_abandoned(one, -math.huge)
  drop_keys(one.key, QUEUE_KEYS)
  redis.call('PUBLISH', one.key .. ':news', '*')
end
return {'ok', state}

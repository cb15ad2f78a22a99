#!lua flags=allow-oom
-- Deletes a queue with its messages, subscriptions, dead letters and events.
--
-- KEYS[1]  the queue's hash; removes it and all keys that begin with its name
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  alone if its events stay, or nothing
-- Answers  ok
-- uses: runs queue reader family
local q, refusal = begin()
if not q then
  return refusal
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
  drop_keys(one.key, QUEUE_KEYS)
  redis.call('PUBLISH', one.key .. ':news', '*')
end
return {'ok'}

#!lua flags=allow-oom
-- Changes the settings of a subscription.
--
-- KEYS[1]  the queue's hash; writes the subscription's keys, and those of the others that it waits
--          for or that wait for it
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  the version that follows
-- ARGV[4]  the subscription
-- ARGV[5]  packed: fields of the subscription
-- Answers  ok
-- uses: runs queue reader letters time family
local q, refusal = begin()
if not q then
  return refusal
end
local own = {}
local parents = take_parents(ARGV[5], own)
redis.call('HSET', q.key .. ':s:' .. ARGV[4], unpack(own))
local s = load_reader(q, ARGV[4])
put(q, 'version', ARGV[3])
link(q, {[s.name] = parents})
if #s.parent_names > 0 then
  -- What a dead letter means here may have changed.
  parents_passed(q, s, 0, q.next)
end
cascade(q, s)
tell(q)
finish()
return {'ok'}

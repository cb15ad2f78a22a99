#!lua flags=allow-oom
-- Changes the settings of a subscription.
--
-- KEYS[1]  the queue's hash; writes the keys of the subscription, its parents and its children
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the next version
-- ARGV[4]  the subscription
-- ARGV[5]  packed: fields of the subscription
-- Returns  ok
-- uses: runs queue reader letters time family
local q, refusal = begin()
if not q then
  return refusal
end
local own = {}
local parents = take_parents(ARGV[5], own)
redis.call('HSET', q.key .. ':s:' .. ARGV[4], unpack(own))
local s = load_reader(q, ARGV[4])
put(s, 'changed', q.now)
put(q, 'version', ARGV[3])
link(q, s, parents)
if #s.parent_names > 0 then
  -- `on_dead` may have changed, so that dead letters of the parents no longer hold back.
  parents_passed(q, s, 0, q.next)
end
cascade(q, s)
tell(q)
finish()
return {'ok'}

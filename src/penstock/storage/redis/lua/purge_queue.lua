#!lua flags=allow-oom
-- Settles every message for every subscription, and removes all that no dead letter refers to.
--
-- KEYS[1]  the queue's hash; writes all its keys
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- Returns  ok
-- uses: runs queue reader letters time
local q, refusal = begin()
if not q then
  return refusal
end
q.counts = {purged = q.next - q.first}
for _, s in ipairs(each_reader(q)) do
  local runs = unsettled_within(q, s, 0, q.next)
  if #runs > 0 then
    settle(q, s, runs, 'purged')
  end
end
if q.first < q.next then
  trim_to(q, q.next)
end
finish()
return {'ok'}

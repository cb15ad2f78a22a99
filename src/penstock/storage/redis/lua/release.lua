#!lua flags=allow-oom
-- Releases messages that parents hold back: all of them or none.
--
-- KEYS[1]  the queue's hash; writes the keys of the subscription
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4…] indexes
-- Returns  ok; or missing or free, and the first index that is not there or not held back
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
for at = 4, #ARGV do
  local index = tonumber(ARGV[at])
  if not holds(q, index) then
    return {'missing', ARGV[at]}
  end
  if #s.parent_names == 0 or runs_has(s.key .. ':opened', index) or is_settled(q, s, index) then
    return {'free', ARGV[at]}
  end
end
for at = 4, #ARGV do
  local index = tonumber(ARGV[at])
  open(q, s, index, index + 1)
end
finish()
return {'ok'}

#!lua flags=no-writes
-- The lowest indexes that parents hold back.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription and its parents
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  how many at most
-- Returns  ok, indexes
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local indexes = {}
for _, run in ipairs(cut(held_runs(q, load_reader(q, ARGV[3])), tonumber(ARGV[4]))) do
  for index = run[1], run[2] - 1 do
    indexes[#indexes + 1] = index
  end
end
return {'ok', indexes}

#!lua flags=no-writes
-- The lowest indexes that parents hold back, and which parents.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription and its parents
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  how many at most
-- Returns  ok, indexes, and for each index the names of the parents
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s, indexes, waits_for = load_reader(q, ARGV[3]), {}, {}
local parents = {}
for _, name in ipairs(s.parent_names) do
  parents[name] = load_reader(q, name)
end
for _, run in ipairs(cut(held_runs(q, s), tonumber(ARGV[4]))) do
  for index = run[1], run[2] - 1 do
    local names = {}
    for _, name in ipairs(s.parent_names) do
      if #passed(q, parents[name], index, index + 1, s.on_dead == 'ignore') == 0 then
        names[#names + 1] = name
      end
    end
    indexes[#indexes + 1], waits_for[#waits_for + 1] = index, names
  end
end
return {'ok', indexes, waits_for}

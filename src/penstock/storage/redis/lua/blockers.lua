#!lua flags=no-writes
-- The parents that each message still waits for.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription and its parents
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4…] indexes
-- Returns  ok, and for each index the names of the parents
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s, found = load_reader(q, ARGV[3]), {}
for at = 4, #ARGV do
  local index, names = tonumber(ARGV[at]), {}
  if not is_settled(q, s, index) and not runs_has(s.key .. ':opened', index) then
    for _, name in ipairs(s.parent_names) do
      local parent = load_reader(q, name)
      if #passed(q, parent, index, index + 1, s.on_dead == 'ignore') == 0 then
        names[#names + 1] = name
      end
    end
  end
  found[#found + 1] = names
end
return {'ok', found}

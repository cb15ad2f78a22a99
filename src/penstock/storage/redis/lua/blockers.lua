#!lua flags=no-writes
-- For each message the subscriptions that it still waits for.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription and of those it waits for
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  the subscription
-- ARGV[4…] indexes
-- Answers  ok, and of each the names
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

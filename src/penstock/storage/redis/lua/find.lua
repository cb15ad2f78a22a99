#!lua flags=no-writes
-- Finds messages by what their ids carry: index and time of creation.
--
-- KEYS[1]  the queue's hash; reads its :stream and :stragglers
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  packed: {index, created in milliseconds, ...}
-- Returns  ok, the entries that there are
-- uses: runs queue
local q, refusal = begin()
if not q then
  return refusal
end
local wanted, found = cmsgpack.unpack(ARGV[3]), {}
for at = 1, #wanted, 2 do
  local entry = holds(q, wanted[at]) and entry_at(q, wanted[at])
  if entry and math.floor(tonumber(entry_field(entry, 't')) / 1000) == wanted[at + 1] then
    found[#found + 1] = entry
  end
end
return {'ok', found}

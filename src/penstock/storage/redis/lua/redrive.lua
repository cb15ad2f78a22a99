#!lua flags=allow-oom
-- Replays dead letters on the subscriptions where they failed, or discards them.
--
-- KEYS[1]  the queue's hash; writes the keys of its subscriptions and of its dead-letter queue
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  replayed or discarded
-- ARGV[4]  packed: {index, created in milliseconds, ...} of the original messages, or empty for all
-- Returns  ok, and the number of dead letters
-- uses: runs queue reader letters
local q, refusal = begin()
if not q then
  return refusal
end
if q.dlq == '' then
  return {'ok', 0}
end
local letters = letters_of(q)
local wanted
if ARGV[4] ~= '' then
  wanted = {}
  local ids = cmsgpack.unpack(ARGV[4])
  for at = 1, #ids, 2 do
    local entry = holds(q, ids[at]) and entry_at(q, ids[at])
    if entry and math.floor(tonumber(entry_field(entry, 't')) / 1000) == ids[at + 1] then
      wanted[ids[at]] = true
    end
  end
end
local readers = {}
for _, s in ipairs(each_reader(q)) do
  readers[s.id] = s
end
local found, all = {}, redis.call('HGETALL', letters.key .. ':letters')
for at = 1, #all, 2 do
  local reader_id, origin = string.match(all[at + 1], '^(%d+):(%d+)$')
  origin = tonumber(origin)
  if (not wanted or wanted[origin]) and (ARGV[3] == 'discarded' or readers[reader_id]) then
    found[#found + 1] = {tonumber(all[at]), readers[reader_id], origin}
  end
end
table.sort(found, function(one, other) return one[1] < other[1] end)
local indexes = {}
for at, letter in ipairs(found) do
  indexes[at] = letter[1]
  if ARGV[3] == 'replayed' and revive(q, letter[2], letter[3]) then
    outlive(q, letter[3])
  end
end
if #indexes > 0 then
  settle(letters, load_reader(letters, 'default'), runs_of(indexes), ARGV[3])
end
finish()
return {'ok', #indexes}

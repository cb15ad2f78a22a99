#!lua
-- Creates a subscription.
--
-- KEYS[1]  the queue's hash; creates the subscription's keys and its consumer group, writes the
--          keys of its parents
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the next version
-- ARGV[4]  the name
-- ARGV[5]  packed: fields of the subscription
-- ARGV[6]  kind of the start position: earliest, latest, index or time
-- ARGV[7]  value of the start position
-- ARGV[8]  the id under which reserve_filter.lua reserved its filter, or empty
-- ARGV[9]  packed: {the index from which on its matches are known, earlier matches as bounds}
-- Returns  ok and the index from which on its matches are known; exists; or unreserved if the
--          reservation was dropped meanwhile
-- uses: runs queue reader letters time family
local q, refusal = begin()
if not q then
  return refusal
end
local name = ARGV[4]
if has_reader(q, name) then
  return {'exists'}
end
local start = resolve_start(q, ARGV[6], ARGV[7])
local since, bounds = start, {}
if ARGV[8] ~= '' then
  local pending = cjson.decode(redis.call('HGET', q.key, 'pending') or '[]')
  local kept, is_reserved = {}, false
  for _, one in ipairs(pending) do
    if one[1] == ARGV[8] then
      is_reserved = true
    else
      kept[#kept + 1] = one
    end
  end
  if not is_reserved then
    return {'unreserved'}
  end
  redis.call('HSET', q.key, 'pending', #kept > 0 and cjson.encode(kept) or '[]')
  local found = cmsgpack.unpack(ARGV[9])
  since, bounds = found[1], found[2]
  local key = q.key .. ':f:' .. ARGV[8] .. ':matched'
  if redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, q.key .. ':s:' .. name .. ':matched')
  end
end
-- It is created without parents; `link` adds them, and opens what they have passed.
local own = {'since', text(since)}
local parents = take_parents(ARGV[5], own)
look_again(q, start)
local s = make_reader(q, name, own, start)
put(q, 'version', ARGV[3])
add_matches(s, bounds)
count_matches(q, s, start)
place(q, s, start, q.next)
link(q, s, parents)
cascade(q, s)
tell(q)
finish()
return {'ok', since}

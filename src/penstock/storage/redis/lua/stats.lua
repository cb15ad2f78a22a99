#!lua flags=allow-oom
-- The current state of a queue and of all or some of its subscriptions.
--
-- KEYS[1]  the queue's hash; reads all its keys, makes ready what is due
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  packed: the subscriptions; or empty for all
-- Returns  empty if there is no such queue; otherwise the time, the fields of the queue, {messages,
--          bytes, dead letters}, and for each subscription its name, its fields and {in flight,
--          delayed, parked, held, unsettled, lowest unsettled index, when that was created or -1}
-- uses: runs queue reader
local q = load_queue(KEYS[1])
if not q or q.version == '' then
  return {}
end
set_time(q, ARGV[1])
local wanted = {}
if ARGV[2] == '' then
  wanted = words(q.subs)
else
  for _, name in ipairs(cmsgpack.unpack(ARGV[2])) do
    if has_reader(q, name) then
      wanted[#wanted + 1] = name
    end
  end
end
local readers = {}
for at, name in ipairs(wanted) do
  local s = load_reader(q, name)
  mature(q, s)
  local floor = floor_of(q, s)
  local unsettled = unsettled_count(q, s)
  local entry = floor < q.next and unsettled > 0 and holds(q, floor) and entry_at(q, floor)
  readers[at] = {s.name, redis.call('HGETALL', s.key), {
    leased_count(s),
    redis.call('ZCARD', s.key .. ':waiting'),
    redis.call('ZCARD', s.key .. ':line'),
    runs_count(held_runs(q, s)),
    unsettled,
    floor,
    entry and tonumber(entry_field(entry, 't')) or -1,
  }}
end
finish()
return {q.now, redis.call('HGETALL', q.key), {
  q.next - q.first + redis.call('ZCARD', q.key .. ':stragglers'),
  q.first < q.next and bytes_from(q, q.first) or 0,
  q.dlq ~= '' and redis.call('HLEN', q.key .. '-dlq:letters') or 0,
}, readers}

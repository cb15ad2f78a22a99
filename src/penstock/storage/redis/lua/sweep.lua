#!lua flags=allow-oom
-- Does what is due in a queue and in its dead letters, unless another server just has.
--
-- KEYS[1]  the queue's hash; writes all its keys
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  how long, in microseconds, the work of another server counts
-- Answers  1 if it has, 0 if there is no such queue or another server has
-- uses: runs queue reader letters time
local due = redis.call('HMGET', KEYS[1], 'id', 'swept', 'dlq')
if not due[1] then
  return 0
end
local q = load_queue(KEYS[1])
set_time(q, ARGV[1])
if due[2] and q.now - tonumber(due[2]) < tonumber(ARGV[2]) then
  return 0
end
put(q, 'swept', q.now)
local queues = {q}
if q.dlq ~= '' then
  queues[2] = letters_of(q)
end
for _, one in ipairs(queues) do
  expire(one)
  local old = redis.call('ZRANGEBYSCORE', one.key .. ':dedup_times', '-inf',
    text(one.now - one.dedup), 'LIMIT', 0, MOST_AT_ONCE)
  if #old > 0 then
    call_many('ZREM', one.key .. ':dedup_times', {}, old)
    local messages, requests = {}, {}
    for _, member in ipairs(old) do
      local keys = string.sub(member, 1, 1) == 'm' and messages or requests
      keys[#keys + 1] = string.sub(member, 2)
    end
    call_many('HDEL', one.key .. ':dedup', {}, messages)
    call_many('HDEL', one.key .. ':requests', {}, requests)
  end
  for _, s in ipairs(each_reader(one)) do
    end_leases(one, s)
    mature(one, s)
    cascade(one, s)
  end
  trim(one)
end
finish()
return 1

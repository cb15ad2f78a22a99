#!lua flags=allow-oom
-- Does what is due in a queue and its dead-letter queue, unless a server has done so recently.
--
-- KEYS[1]  the queue's hash; writes all its keys
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  how many microseconds must have passed since the last sweep
-- ARGV[3]  how many milliseconds a consumer must be idle to be removed from its group
-- ARGV[4]  how many new dead letters are reported at most; 0 if another server reports them
-- ARGV[5]  the age in microseconds at which reservations of filters are dropped as abandoned
-- Returns  0 if there is no such queue or the last sweep is recent; 1 if it was swept; or, if there
--          are new dead letters, how many of them are left out, and {salt, when it failed,
--          subscription, index, deliveries, reason, when it was created} of each of the others
-- uses: runs queue reader letters time family
local TIDY_US = 60 * 1000000

-- Every minute, drop reservations of filters that publishers apply for nobody, and remove idle
-- consumers from the consumer groups. A consumer with pending entries stays until these are settled
-- or claimed by another. One that is still alive is created again by its next receive.
local function tidy(one)
  local tidied = tonumber(redis.call('HGET', one.key, 'tidied') or nil)
  if tidied and one.now - tidied < TIDY_US then
    return
  end
  put(one, 'tidied', one.now)
  local kept, are_some_dropped = drop_abandoned(one, tonumber(ARGV[5]))
  if are_some_dropped then
    local id, number = string.match(one.version, '^(%d+)%.(%d+)$')
    put(one, 'pending', #kept > 0 and cjson.encode(kept) or '[]')
    put(one, 'version', id .. '.' .. text(number + 1))
  end
  for _, s in ipairs(each_reader(one)) do
    for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', one.stream, s.name)) do
      local consumer = {}
      for at = 1, #fields, 2 do
        consumer[fields[at]] = fields[at + 1]
      end
      if consumer.pending == 0 and consumer.idle >= tonumber(ARGV[3]) then
        redis.call('XGROUP', 'DELCONSUMER', one.stream, s.name, consumer.name)
      end
    end
  end
end

-- What the script returns of dead letters since the last report; 1 if there are none.
local function new_letters(q, most)
  local from = tonumber(redis.call('HGET', q.key, 'watched') or nil) or 0
  local letters = q.letters
  if most == 0 or not letters or letters.next <= from then
    return 1
  end
  put(q, 'watched', letters.next)
  local found = redis.call('XRANGE', letters.stream, entry_id(from), '+', 'COUNT', most)
  local answer = {0}
  for at, entry in ipairs(found) do
    local row = {redis.call('HGET', q.key, 'salt')}
    for place, name in ipairs({'t', 'subscription', 'index', 'deliveries', 'reason', 'created'}) do
      row[place + 1] = entry_field(entry, name)
    end
    answer[at + 1] = row
  end
  if #found == most then
    answer[1] = letters.next - tonumber(string.match(found[most][1], '^%d+')) - 1
  end
  return #found > 0 and answer or 1
end

local due = redis.call('HMGET', KEYS[1], 'version', 'swept')
if not due[1] then
  -- Without its subscriptions, a queue that is being rebuilt would lose what they have not settled.
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
  tidy(one)
end
local answer = new_letters(q, tonumber(ARGV[4]))
finish()
return answer

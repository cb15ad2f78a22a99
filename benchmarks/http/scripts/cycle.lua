-- Push, pop and ack in turn, one after the other on each connection: run it with a thread for
-- each. The argument is the Authorization header. A pop that finds nothing counts as an error.
local step = 1
local id = ""
local head = {}

function init(args)
  head = { ["Authorization"] = args[1], ["consumerGroup"] = "cycle" }
  push = wrk.format("POST", "/queue/push", head, string.rep("x", 256))
  pop = wrk.format("GET", "/queue/pop", head)
end

function request()
  if step == 1 then return push end
  if step == 2 then return pop end
  return wrk.format("POST", "/queue/ack?id=" .. id, head)
end

-- The step is over with its answer: wrk asks for a request more often than it sends one.
function response(status, headers, body)
  if step == 2 then id = string.match(body, '"id":"([^"]+)"') or "none" end
  step = step % 3 + 1
end

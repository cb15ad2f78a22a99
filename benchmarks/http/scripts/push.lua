-- POST /queue/push with 256 bytes, as a user. The argument is the Authorization header.
function init(args)
  wrk.method = "POST"
  wrk.path = "/queue/push"
  wrk.body = string.rep("x", 256)
  wrk.headers["Authorization"] = args[1]
  wrk.headers["consumerGroup"] = "bench"
  wrk.headers["Content-Type"] = "text/plain"
  push = wrk.format()
end

function request()
  return push
end

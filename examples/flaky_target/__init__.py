"""A downstream service that fails on request. It is a tool for trying and testing, and is never deployed.

The first `times` tries of one idempotency key get the named trouble; every later try is answered 200 with an
echo. Any HTTP method works. Tries are counted per key and path, so one key may meet several paths;
without a key they are counted per path and query.

| path | the first `times` tries | query |
|---|---|---|
| `/echo` | (answers 200 at once) | |
| `/fail/{times}` | are answered with a status | `status` = 503, `retry_after` seconds, `form` |
| `/throttle/{times}` | are answered 429 with Retry-After | `retry_after` = 1, `form` |
| `/hang/{times}` | get no answer for a while, then the echo | `seconds` = 30 |
| `/drop/{times}` | lose their connection | `when` = before_body, after_body (default), mid_response |
| `/slow/{times}` | get their answer in ten pieces | `seconds` = 5 in all |
| `/huge/{times}` | get a body of many bytes | `bytes` = 10000000 |
| `/redirect/{times}` | are redirected | `to` = /echo, `status` = 307 |
| `/garbled/{times}` | get a 200 that calls itself JSON and is not | |
| `/status/{code}` | (every try is answered with this status) | `retry_after`, `form` |

`form` of a Retry-After is `seconds` (default), `date` (an HTTP-date), `ms` (the field `retry-after-ms`) or
`ratelimit` (the field `RateLimit`).

`PUT /outage/on?status=503` makes every path above fail until `PUT /outage/off`; with `status=0` it drops the
connection. `GET /counts`, `GET /counts/{key}` and `DELETE /counts` tell and forget what came, per key.
"""

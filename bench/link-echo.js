// link-echo.js <task>: a process that takes one link and sends frames of type 1 back; of others, the last one of a run.
import { openTransport } from '#lib/cluster/links/open-transport.js'

const { name, own, options } = JSON.parse(process.argv[2] ?? '')
const transport = await openTransport(name, options)
const listener = await transport.listen(own, { accepts: () => null })
console.log(listener.address.port)
for await (const link of listener) {
  for await (const { type, id, payload } of link) {
    if (type === 1) await link.send({ type, id, payload })
    else if (type === 3) await link.send({ type, id, payload: payload.subarray(0, 1) })
  }
  break
}
await listener.close()

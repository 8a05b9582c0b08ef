// links.js: links between two processes of this machine, on each transport: round trips of 64 B and 16 KiB, and a stream.
import assert from 'node:assert'
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { openTransport, transportNames } from '#lib/cluster/links/open-transport.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */
/** @import { FrameStream } from '#lib/cluster/links/frame-stream.js' */

const dtype = 'bytes'
const streamed = 64
/** Where the tests have installed the package for QUIC. */
const quicFrom = path.resolve(import.meta.dirname, '../../build/quic-client/index.js')
const worker = path.resolve(import.meta.dirname, '../link-echo.js')

/** @param {Kernels} kernels @param {Peer | null} _peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* links({ backend }, _peer, wanted) {
  if (backend !== 'cpu') return
  const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-bench-links-'))
  try {
    const authority = await ClusterAuthority.create('bench', folder)
    const identities = ['a', 'b'].map(name => NodeIdentity.open(path.join(folder, name)))
    const [own, other] = await Promise.all(identities).then(async ([a, b]) => [
      await authority.certify(/** @type {NodeIdentity} */ (a)),
      await authority.certify(/** @type {NodeIdentity} */ (b)),
    ])
    for (const name of transportNames) {
      const shapes = ['64 B there and back', '16 KiB there and back', '1 MiB, a stream'].map(
        shape => `${name}, ${shape}`,
      )
      const rows = shapes.filter(shape => wanted({ name: 'link', shape, dtype }))
      if (rows.length > 0) yield* rowsOf(name, own, other, rows)
    }
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** @param {import('#lib/cluster/links/transport.js').TransportName} name @param {any} own @param {any} other @param {string[]} rows @returns {AsyncGenerator<Case>} */
async function* rowsOf(name, own, other, rows) {
  const options = name === 'quic' && existsSync(path.dirname(quicFrom)) ? { quicFrom } : {}
  const child = spawn(process.execPath, [worker, JSON.stringify({ name, own: other, options })], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const port = await Promise.race([
    once(child.stdout, 'data').then(([text]) => Number(text)),
    once(child, 'exit').then(() => 0),
  ])
  if (port === 0) {
    console.log(`link  ${name}: its package is not installed`)
    return
  }
  const link = await (await openTransport(name, options)).connect(
    { host: '127.0.0.1', port },
    own,
    other.nodeId,
  )
  try {
    for (const shape of rows) yield row(link, shape)
  } finally {
    await link.close()
    child.kill()
  }
}

/** @param {FrameStream} link @param {string} shape @returns {Case} */
function row(link, shape) {
  const isStream = shape.endsWith('stream')
  const bytes = isStream ? 1 << 20 : shape.includes('64 B') ? 64 : 16 << 10
  const payload = randomBytes(bytes)
  const roundTrip = async () => {
    await link.send({ type: 1, id: 0, payload })
    return link.receive()
  }
  const stream = async () => {
    for (let id = 0; id < streamed; id++) await link.send({ type: id === streamed - 1 ? 3 : 2, id, payload })
    return link.receive()
  }
  return {
    name: 'link',
    shape,
    dtype,
    bytes: isStream ? bytes * streamed : bytes * 2,
    bandwidth: 'thread',
    run: isStream ? stream : roundTrip,
    check: async () => {
      const answer = await (isStream ? stream() : roundTrip())
      assert.ok(answer && (isStream ? answer.id === streamed - 1 : answer.payload.equals(payload)))
    },
  }
}

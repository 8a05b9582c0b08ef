// communicators.js: round trips and all-reduces of two ranks, over each kind of communicator that is here: local (threads of this
// process), stream (TLS over loopback, both ends in this process), mpi (Open MPI, two processes). Prints medians.
//   node bench/communicators.js
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, cpus, tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { join } from '#lib/cluster/communicators/join.js'
import { launchMpi } from '#lib/cluster/communicators/mpi-launch.js'
import { Fabric } from '#lib/cluster/links/fabric.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'

/** @typedef {import('#lib/cluster/communicators/communicator.js').Communicator} Communicator */

const messages = [64, 16 << 10, 1 << 20]
const sums = [16 << 10, 16 << 20]
const script = fileURLToPath(import.meta.url)

/** Milliseconds, the median. @param {number} rounds @param {() => Promise<unknown>} work */
async function median(rounds, work) {
  const times = []
  for (let i = 0; i < rounds + 3; i++) {
    const start = performance.now()
    await work()
    if (i >= 3) times.push(performance.now() - start)
  }
  return /** @type {number} */ (times.sort((a, b) => a - b)[rounds >> 1])
}

/** What one of two ranks does; rank 0 prints. @param {Communicator} communicator */
async function measure(communicator) {
  const { kind, rank } = communicator
  const print = (
    /** @type {string} */ what,
    /** @type {number} */ bytes,
    /** @type {number} */ ms,
    times = 1,
  ) => {
    const size = bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${bytes >> 10} KiB` : `${bytes >> 20} MiB`
    const rate = ((bytes * times) / ms / 1e6).toFixed(3)
    if (rank === 0)
      console.log(
        `${kind.padEnd(7)} ${what.padEnd(11)} ${size.padStart(7)} ${(ms * 1000).toFixed(0).padStart(7)} us ${rate.padStart(7)} GB/s`,
      )
  }
  for (const bytes of messages) {
    const array = new Uint8Array(bytes)
    const [first, second] =
      rank === 0 ? /** @type {const} */ (['send', 'recv']) : /** @type {const} */ (['recv', 'send'])
    const ms = await median(bytes > 1e5 ? 50 : 300, async () => {
      await communicator[first](1 - rank, array)
      await communicator[second](1 - rank, array)
    })
    print('round trip', bytes, ms, 2)
  }
  for (const bytes of sums) {
    const values = new Float32Array(bytes / 4)
    print('all-reduce', bytes, await median(bytes > 1e6 ? 15 : 200, () => communicator.allReduce(values)))
  }
  await communicator.leave()
}

async function stream() {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-bench-'))
  const authority = await ClusterAuthority.create('bench', path.join(folder, 'ca'))
  const certify = async (/** @type {string} */ name) =>
    authority.certify(await NodeIdentity.open(path.join(folder, name)))
  const [own, other] = [await certify('a'), await certify('b')]
  const listener = await tlsTransport().listen(own, { accepts: () => null })
  const connected = tlsTransport().connect(listener.address, other, own.nodeId)
  const { value: here } = await listener[Symbol.asyncIterator]().next()
  const there = await connected
  const place = /** @type {const} */ ({ kind: 'stream', epoch: 1, world: 2 })
  await Promise.all([
    join({ ...place, rank: 0, peers: [undefined, here] }).then(measure),
    join({ ...place, rank: 1, peers: [there] }).then(measure),
  ])
  await listener.close()
  rmSync(folder, { recursive: true })
}

async function mpi() {
  try {
    execFileSync('mpirun', ['--version'], { stdio: 'ignore' })
  } catch {
    console.log('mpi     not measured: no mpirun here')
    return
  }
  const job = await launchMpi({
    epoch: 1,
    hosts: [{ address: '127.0.0.1', ranks: 2 }],
    command: [process.execPath, script, 'rank'],
    interface: 'lo',
    fabric: new Fabric(),
    onLine: line => console.log(line),
  })
  const failure = await job.ended
  if (failure) throw failure
}

if (process.argv[2] === 'rank') {
  const rank = Number(process.env.OMPI_COMM_WORLD_RANK)
  await measure(await join({ kind: 'mpi', epoch: 1, rank, world: 2, interface: 'lo' }))
} else {
  console.log(
    `${cpus()[0]?.model.trim()}, ${availableParallelism()} cores, Node.js ${process.version}; two ranks, medians`,
  )
  const place = /** @type {const} */ ({ kind: 'local', epoch: 1, world: 2 })
  await Promise.all([0, 1].map(async rank => measure(await join({ ...place, rank }))))
  await stream()
  await mpi()
}

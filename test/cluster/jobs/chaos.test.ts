// Jobs while workers, the caller and nats-server are killed: each has its one result, and it is that of an undisturbed run.
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { NatsServer } from '#lib/cluster/control/nats-server.js'
import { randomGenerator } from '#lib/core/random.js'
import { freePorts } from '../../fixtures/cluster/free-port.js'
import { credentialsOf, needsNats } from '../../fixtures/cluster/nats.js'
import { kill } from '../../fixtures/cluster/servers.js'

/** Jobs and events: a few in the suite, CHAOS_JOBS and CHAOS_EVENTS of them at night. */
const jobs = Number(process.env.CHAOS_JOBS ?? 80)
const events = Number(process.env.CHAOS_EVENTS ?? 5)
const seed = Number(process.env.CHAOS_SEED ?? 5)
const root = path.resolve(import.meta.dirname, '../../..')
const places = { queue: 'chaos', leaseMs: 1500, tries: 100 }

function start(task: object): { child: ChildProcess; output: () => string } {
  const child = spawn(process.execPath, ['test/fixtures/cluster/work-host.js', JSON.stringify(task)], {
    cwd: root,
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  child.stdout!.on('data', data => {
    text += data
  })
  return { child, output: () => text }
}

async function killChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

t.test(`${jobs} jobs and ${events} kills`, needsNats, async t => {
  const folder = t.testdir()
  const credentials = await credentialsOf(folder, 4)
  const [port] = await freePorts(1)
  const startServer = (): Promise<NatsServer> =>
    NatsServer.start({
      credentials: credentials[0]!,
      folder: path.join(folder, 'nats'),
      nodes: credentials.map(({ nodeId }) => nodeId),
      listen: { host: '127.0.0.1', port: port! },
    })
  let server = await startServer()
  const clientOf = (i: number) => ({ servers: [server.address], credentials: credentials[i]!, members: 1 })
  const worker = (i: number) => start({ role: 'worker', name: `worker-${i}`, client: clientOf(i), places })
  const lead = () => start({ role: 'lead', client: clientOf(0), places, jobs })
  const workers = [1, 2].map(i => ({ i, ...worker(i) }))
  let leading = lead()
  const random = randomGenerator(seed)
  const counts: Record<string, number> = {}
  for (let event = 0; event < events; event++) {
    await sleep(random() * 800)
    // One of each kind first.
    const kind = event < 3 ? event : Math.floor(random() * 3)
    const name = ['worker', 'caller', 'server'][kind]!
    counts[name] = (counts[name] ?? 0) + 1
    if (kind === 0) {
      const victim = workers[Math.floor(random() * workers.length)]!
      await killChild(victim.child)
      Object.assign(victim, worker(victim.i))
    } else if (kind === 1) {
      await killChild(leading.child)
      leading = lead()
    } else {
      await kill(server)
      await sleep(random() * 300)
      server = await startServer()
    }
  }
  if (leading.child.exitCode === null) await once(leading.child, 'exit')
  t.equal(leading.child.exitCode, 0)
  const { results, nodes } = JSON.parse(leading.output().trim().split('\n').at(-1)!)
  const expected = Array.from({ length: jobs }, (_, n) =>
    createHash('sha256').update(`job ${n}`).digest('hex'),
  )
  t.same(results, expected)
  t.equal(
    nodes.reduce((sum: number, [, count]: [string, number]) => sum + count, 0),
    jobs,
  )
  t.comment(`kills: ${JSON.stringify(counts)}; jobs of each node: ${JSON.stringify(nodes)}`)
  for (const { child } of workers) await killChild(child)
  await server.stop()
})

// Three nats-servers on a switch that cuts off the one that leads: the others go on, and both sides agree afterwards.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { NodeCredentials } from '#lib/cluster/trust/credentials.js'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'
import { credentialsOf, needsNats } from '../../fixtures/cluster/nats.js'

/** Partitions: CONTROL_PARTITIONS of them at night. */
const partitions = Number(process.env.CONTROL_PARTITIONS ?? 0)
const reason = 'skip' in needsNats ? needsNats.skip : canMakeNetworks()
const skip = reason || (partitions === 0 && 'takes half a minute: npm run nightly')
const root = path.resolve(import.meta.dirname, '../../..')
const address = (i: number): string => `10.231.${i}.2`

/** A process on a host, and what it has said. */
class Machine {
  readonly said: unknown[][] = []
  readonly #child: ChildProcess
  readonly #lines: Interface

  constructor(network: TestNetwork, host: string, task: object) {
    const script = path.join(root, 'test/fixtures/cluster/nats-host.js')
    const command = network.inside(host, [process.execPath, script, JSON.stringify(task)])
    this.#child = spawn(command[0]!, command.slice(1), {
      cwd: root,
      env: { ...process.env, NODE_OPTIONS: '' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#lines = createInterface({ input: this.#child.stdout! })
    this.#lines.on('line', line =>
      this.said.push(JSON.parse(`[${line.replaceAll(/(?<=["\d]) (?=["\d])/g, ',')}]`)),
    )
  }

  count(what: string): number {
    return this.said.filter(([first]) => first === what).length
  }

  /** Waits until something was said so often. */
  async until(what: string, count: number): Promise<void> {
    const giveUp = performance.now() + 60_000
    while (this.count(what) < count) {
      if (performance.now() > giveUp || this.#child.exitCode !== null) throw new Error(`no ${what}`)
      await sleep(10)
    }
  }

  ask(line: string): void {
    this.#child.stdin!.write(`${line}\n`)
  }

  async end(): Promise<void> {
    this.#child.stdin!.end()
    if (this.#child.exitCode === null) await once(this.#child, 'close')
  }
}

/** A switch with three hosts behind it. */
function wire(network: TestNetwork): { hub: string; hosts: string[]; nft: (rule: string) => void } {
  const hub = network.host('hub')
  const inside = (host: string, ...command: string[]): void => {
    const [first, ...rest] = network.inside(host, command) as [string, ...string[]]
    execFileSync(first, rest)
  }
  const hosts = [0, 1, 2].map(i => {
    const host = network.host(`s${i}`)
    network.cable(hub, `10.231.${i}.1/30`, host, `${address(i)}/30`)
    inside(host, 'ip', 'route', 'add', 'default', 'via', `10.231.${i}.1`)
    return host
  })
  inside(hub, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward')
  const nft = (rule: string): void => inside(hub, 'nft', rule)
  nft('add table inet cut')
  nft('add chain inet cut forward { type filter hook forward priority 0; }')
  return { hub, hosts, nft }
}

function serverTask(folder: string, credentials: readonly NodeCredentials[], i: number): object {
  return {
    server: {
      credentials: credentials[i],
      folder: path.join(folder, `server-${i}`),
      nodes: credentials.map(({ nodeId }) => nodeId),
      listen: { host: address(i), port: 4222 },
      cluster: { host: address(i), port: 6222, routes: [0, 1, 2].map(each => `${address(each)}:6222`) },
    },
  }
}

t.test('the leader is cut off from the other servers', { skip }, async t => {
  const folder = t.testdir()
  const network = new TestNetwork('ctl')
  try {
    const { hub, hosts, nft } = wire(network)
    const credentials = await credentialsOf(folder, 3, [0, 1, 2].map(address))
    const servers = hosts.map((host, i) => new Machine(network, host, serverTask(folder, credentials, i)))
    await Promise.all(servers.map(server => server.until('ready', 1)))
    const client = new Machine(network, hub, {
      client: {
        servers: [0, 1, 2].map(i => `${address(i)}:4222`),
        credentials: credentials[0],
        members: 3,
        timeoutMs: 60_000,
      },
    })
    const gaps: number[] = []
    for (let round = 1; round <= partitions; round++) {
      await client.until('ack', client.count('ack') + 20)
      client.ask('leader')
      await client.until('leader', round)
      const leader = credentials.findIndex(
        ({ nodeId }) => nodeId === client.said.findLast(([what]) => what === 'leader')?.[1],
      )
      t.not(leader, -1, 'there is a leader')
      const cut = performance.now()
      nft(`add rule inet cut forward ip saddr ${address(leader)} drop`)
      nft(`add rule inet cut forward ip daddr ${address(leader)} drop`)
      // What was on its way may still be acknowledged.
      await sleep(500)
      await client.until('ack', client.count('ack') + 1)
      gaps.push(performance.now() - cut)
      await client.until('ack', client.count('ack') + 20)
      nft('flush chain inet cut forward')
    }
    await client.until('ack', client.count('ack') + 20)
    await client.end()
    const stored = new Map(
      client.said.filter(([what]) => what === 'stored').map(([, seq, record]) => [seq, record]),
    )
    const acknowledged = client.said.filter(([what]) => what === 'ack')
    const lost = acknowledged.filter(([, seq, record]) => stored.get(seq) !== record)
    t.same(lost, [], `${acknowledged.length} acknowledged records`)
    t.equal(new Set(stored.values()).size, stored.size, 'none is stored twice')
    t.comment(`${partitions} partitions: acknowledged again after at most ${Math.max(...gaps).toFixed(0)} ms`)
    await Promise.all(servers.map(server => server.end()))
  } finally {
    network.close()
  }
})

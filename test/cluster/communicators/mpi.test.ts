// Ranks over Open MPI: ranks that die, worlds that do not fit, launches on two machines, commands that are refused.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { networkInterfaces } from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import {
  checkTensorLink,
  fabricNetworks,
  type TensorLink,
} from '#lib/cluster/communicators/fabric-networks.js'
import { join } from '#lib/cluster/communicators/join.js'
import { daemonCommand } from '#lib/cluster/communicators/mpi-daemon.js'
import { launchMpi } from '#lib/cluster/communicators/mpi-launch.js'
import { MpiProcess, makeFolder } from '#lib/cluster/communicators/mpi-processes.js'
import { Fabric } from '#lib/cluster/links/fabric.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { localJob, noMpi, rankCommand } from '../../fixtures/cluster/mpi.js'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'

t.test('a rank is killed: the job ends with an error, this process goes on', { skip: noMpi }, async t => {
  const { job, lines } = await localJob('wait', 2, /^pid /)
  const pids = await lines
  const last = pids.find(line => line.endsWith('of 1'))!
  process.kill(Number(last.split(' ')[1]), 'SIGKILL')
  t.match(await job.ended, { code: 'ERR_IO', message: /mpirun ended with/ })
  await job.stop()
})

t.test('a process joins one world', { skip: noMpi }, async t => {
  const { job, lines } = await localJob('wait', 1, /^ERR_/)
  t.match(await lines, [/ERR_CONFLICT this process has joined an MPI world already/])
  await job.stop()
})

t.test('worlds that do not fit', { skip: noMpi }, async t => {
  for (const [scenario, words] of [
    ['epochs', /^ERR_CONFLICT rank \d joins epoch \d, rank \d epoch \d/],
    ['ranks', /^ERR_CONFLICT mpirun started this process as rank \d of 2; it joins as rank \d of 7/],
  ] as const) {
    const found: string[] = []
    const launch = launchMpi({
      epoch: 1,
      hosts: [{ address: '127.0.0.1', ranks: 2 }],
      command: rankCommand(scenario),
      env: { NODE_OPTIONS: '' },
      interface: 'lo',
      fabric: new Fabric(),
      timeoutMs: 1000,
      onLine: line => found.push(line),
    })
    await t.rejects(launch, { code: 'ERR_IO', message: /2 of 2 ranks did not join within 1000 ms/ })
    t.ok(found.filter(line => words.test(line)).length >= 2, scenario)
  }
})

/** A node in a namespace, and the first line that it prints. */
async function node(t: Test, network: TestNetwork, host: string, task: object): Promise<string> {
  const script = path.resolve(import.meta.dirname, '../../fixtures/cluster/mpi-host.js')
  const [command = '', ...args] = network.inside(host, [process.execPath, script, JSON.stringify(task)])
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], timeout: 60_000 })
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  })
  const [line] = await once(createInterface({ input: child.stdout }), 'line')
  return line
}

t.test('two machines', { skip: noMpi || canMakeNetworks() }, async t => {
  const network = new TestNetwork('mpi')
  t.teardown(() => network.close())
  const [left, right] = [network.host('a'), network.host('b')]
  const [name, otherName] = network.cable(left, '10.77.0.1/24', right, '10.77.0.2/24')
  const [own, other] = await lab(t, 2)
  const fabric = ['10.77.0.0/24']
  const host = { own: other, listen: '10.77.0.2', name: otherName, fabric }
  const port = Number(await node(t, network, right, host))
  const command = rankCommand('works')
  const launch = { address: '10.77.0.1', command: [...command, name], env: { NODE_OPTIONS: '' } }
  const task = { own, peer: other!.nodeId, address: { host: '10.77.0.2', port }, name, fabric, launch }
  // Both ends of the cable have other names: each rank says its own.
  const script = `exec "$@" $(ls /sys/class/net | grep eth) ${fabric}`
  launch.command = ['/bin/sh', '-c', script, 'rank', ...command]
  const answer = JSON.parse(await node(t, network, left, task))
  t.same(answer.failure, undefined)
  t.same(answer.lines.sort(), ['ok 0', 'ok 1'])
  // A host that does not call the network fabric takes part in nothing.
  const closed = Number(await node(t, network, right, { ...host, fabric: [] }))
  const refused = JSON.parse(
    await node(t, network, left, { ...task, address: { host: '10.77.0.2', port: closed } }),
  )
  t.match(refused.failure, /mpi does not encrypt: interface .* is not in the declared fabric/)
})

t.test('what is not fabric is refused', async t => {
  const denied = { code: 'ERR_DENIED' }
  t.equal(fabricNetworks('mpi', 'lo', new Fabric())[0]?.address, '127.0.0.1')
  t.throws(() => fabricNetworks('mpi', 'none', new Fabric()), {
    code: 'ERR_ARGUMENT',
    message: /interface must be one of lo/,
  })
  const other = Object.entries(networkInterfaces()).find(([, all]) => all?.every(({ internal }) => !internal))
  if (other) {
    const message = new RegExp(`mpi does not encrypt: interface ${other[0]} .* is not in the declared fabric`)
    await t.rejects(join({ kind: 'mpi', epoch: 1, rank: 0, world: 1, interface: other[0] }), {
      ...denied,
      message,
    })
  }
  const launch = { epoch: 1, command: ['true'], interface: 'lo', fabric: new Fabric() }
  await t.rejects(launchMpi({ ...launch, hosts: [{ address: '192.0.2.1' }] }), denied)
  const wrong = { code: 'ERR_ARGUMENT' }
  await t.rejects(launchMpi({ ...launch, hosts: [] }), wrong)
  await t.rejects(launchMpi({ ...launch, hosts: [{ address: '-x evil' }] }), wrong)
  await t.rejects(launchMpi({ ...launch, hosts: [{ address: '127.0.0.1' }], command: [] }), wrong)
})

t.test('tensor parallelism needs a fast link in the fabric', t => {
  const link = (rttMs: number | undefined, fabric = true): TensorLink => ({
    nodes: ['spark-1', 'spark-2'],
    ...{ rttMs, fabric },
  })
  checkTensorLink(link(0.05))
  t.throws(() => checkTensorLink(link(1.25)), {
    code: 'ERR_UNSUPPORTED',
    message:
      /between spark-1 and spark-2 takes 1.25 ms there and back; tensor parallelism needs 1 ms or less/,
  })
  t.throws(() => checkTensorLink(link(0.3), 0.2), { message: /0.30 ms there.*0.2 ms or less/ })
  t.throws(() => checkTensorLink(link(undefined)), { message: /was not measured/ })
  t.throws(() => checkTensorLink(link(0.05, false)), {
    code: 'ERR_DENIED',
    message: /between spark-1 and spark-2 takes 0.05 ms there and back, but is not in the fabric/,
  })
  t.end()
})

t.test('commands for a daemon', async t => {
  const command = [
    'PATH=/x:$PATH',
    '/usr/bin/orted',
    '--daemonize',
    '-mca',
    'ess',
    '"env"',
    'uri',
    '"1.0;tcp://10.0.0.1:5"',
  ]
  const parameters = ['plm_rsh_agent', 'agent', '-mca', 'oob_tcp_if_include', '"0.0.0.0/0"']
  t.same(daemonCommand([...command, ...parameters], '10.0.0.0/24'), [
    'orted',
    [
      '-mca',
      'ess',
      'env',
      'uri',
      '1.0;tcp://10.0.0.1:5',
      'plm_rsh_agent',
      'false',
      '-mca',
      'oob_tcp_if_include',
      '10.0.0.0/24',
    ],
  ])
  const denied = { code: 'ERR_DENIED' }
  for (const words of [
    undefined,
    'orted',
    [],
    ['sh', '-c', 'true'],
    ['orted', 7],
    ['orted', '$(reboot)'],
    ['orted', 'a b'],
    ['orted', "'"],
    ['orted', 'x'.repeat(5000)],
    Array.from({ length: 500 }, () => 'orted'),
  ])
    t.throws(() => daemonCommand(words, ''), denied)
  const program = { command: 'no-such-mpirun', args: [], env: process.env, folder: await makeFolder() }
  await t.rejects(MpiProcess.start(program), { code: 'ERR_UNSUPPORTED', message: /openmpi-bin/ })
})

// From nothing: three machines in network namespaces, cabled in a triangle, become a cluster that trusts and has measured itself.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'
import { up } from '../../fixtures/cluster/up.js'

const main = path.resolve(import.meta.dirname, '../../../dist/cli/main.js')

t.test('three machines on cables', { skip: canMakeNetworks() }, async t => {
  const folder = t.testdir({})
  const network = new TestNetwork('upn')
  t.teardown(() => network.close())
  const names = ['one', 'two', 'three']
  const [one, two, three] = names.map(name => network.host(name)) as [string, string, string]
  network.cable(one, '10.91.0.1/24', two, '10.91.0.2/24')
  network.cable(two, '10.92.0.2/24', three, '10.92.0.3/24')
  network.cable(one, '10.93.0.1/24', three, '10.93.0.3/24')
  const start = (host: string, name: string, ...args: string[]) =>
    up(t, ['--home', path.join(folder, name), '--name', name, ...args], network.inside(host, []))
  const invite = (): string => {
    const command = network.inside(one, [
      process.execPath,
      main,
      'invite',
      '--home',
      path.join(folder, 'one'),
      '--json',
    ])
    return JSON.parse(spawnSync(command[0]!, command.slice(1), { encoding: 'utf8' }).stdout).code
  }

  const begin = performance.now()
  const first = await start(one, 'one', '--cluster', 'triangle')
  const codes = [invite(), invite()]
  const nodes = [
    first,
    await start(two, 'two', '--join', codes[0]!),
    await start(three, 'three', '--join', codes[1]!),
  ]
  const ids = nodes.map(({ first }) => first.nodes[0].id as string)
  for (const [i, node] of nodes.entries())
    for (const id of ids.filter(other => other !== ids[i])) {
      await node.until(new RegExp(`"node-online".*"${id}"`))
      await node.until(new RegExp(`"link".*"${id}"`))
    }
  t.comment(`trusted and measured after ${((performance.now() - begin) / 1000).toFixed(1)} s`)

  const links = network.inside(two, [process.execPath, main, 'links', '--json'])
  const reports = JSON.parse(spawnSync(links[0]!, links.slice(1), { encoding: 'utf8' }).stdout)
  t.equal(reports.length, 2)
  for (const {
    rtt,
    bandwidth,
    source,
    class: { kind },
  } of reports) {
    t.ok(rtt.p50Ms > 0 && bandwidth.p50 > 0)
    t.match(source.name, /^eth/)
    t.not(kind, 'loopback')
  }
})

// up, node, links: two processes make a cluster, as a newcomer would type it; what is refused; how they end.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import t from 'tap'
import { freePort } from '../fixtures/cluster/free-port.js'
import { up } from '../fixtures/cluster/up.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const run = (...args: readonly string[]) =>
  spawnSync(process.execPath, ['--no-warnings', main, ...args], { encoding: 'utf8', timeout: 60_000 })

t.test('two machines', async t => {
  const folder = t.testdir({})
  const [one, two] = [path.join(folder, 'one'), path.join(folder, 'two')]
  const [port, otherPort] = [await freePort(), await freePort()]
  const common = ['--host', '127.0.0.1']
  const begun = await up(t, [
    ...common,
    '--home',
    one,
    '--cluster',
    'lab',
    '--port',
    `${port}`,
    '--state-port',
    '0',
  ])
  t.match(begun.first, { cluster: { name: 'lab', hasAuthority: true } })

  const refused = run('up', '--no-mdns', '--home', two, '--trust-lan', '--at', `127.0.0.1:${port}`)
  t.match(refused, { status: 1, stderr: /nobody may join there at the moment.*dgx-spark invite/s })
  const { code } = JSON.parse(run('invite', '--home', one, '--json').stdout)
  const at = [`--at=127.0.0.1:${port}`, `--peer=127.0.0.1:${port}`]
  const statePort = await freePort()
  const ports = ['--port', `${otherPort}`, '--state-port', `${statePort}`]
  const joined = await up(t, [
    '--no-mdns',
    ...common,
    ...at,
    ...ports,
    '--home',
    two,
    '--join',
    code,
    '--name',
    'second',
  ])
  t.match(joined.first, { cluster: { name: 'lab', hasAuthority: false } })
  await joined.until(/"type":"link"/)
  await begun.until(/"type":"node-online"/)

  const links = run('links', '--state-port', `${statePort}`)
  t.match(links.stdout, /this machine/)
  t.match(links.stdout, /[µm]s \/ .*[µm]s/)
  const [link] = JSON.parse(run('links', '--state-port', `${statePort}`, '--json').stdout)
  t.ok(link.rtt.p50Ms > 0)
  t.match(run('node', '--home', two).stdout, /lab[\s\S]*Devices seen[\s\S]*\/cpu/)
  t.match(run('up', '--no-mdns', '--home', two, '--port', `${otherPort}`), {
    status: 1,
    stderr: /in use by process/,
  })
  t.match(run('up', '--no-mdns', '--home', two, '--join', code), {
    status: 1,
    stderr: /of cluster 'lab' already/,
  })
  t.match(run('up', '--no-mdns', '--home', two, '--cluster', 'other'), {
    status: 1,
    stderr: /--cluster other: this machine is of cluster lab;.*--home/,
  })

  joined.child.kill('SIGINT')
  t.strictSame(await once(joined.child, 'exit'), [0, null])
  t.match(JSON.parse(await begun.until(/"type":"node-offline"/)), { detail: 'the node stops' })
  begun.child.kill('SIGTERM')
  t.strictSame(await once(begun.child, 'exit'), [0, null])
})

t.test('what is refused', async t => {
  const home = path.join(t.testdir({}), 'home')
  const failing = (...args: readonly string[]) => run('up', '--no-mdns', '--home', home, ...args)
  t.match(failing('--join', '1234'), { status: 1, stderr: /52 characters/ })
  t.match(failing('--cluster', 'a/b'), { status: 1, stderr: /clusterName/ })
  t.match(failing('--cluster', 'lab', '--join', '1234'), { status: 2, stderr: /--cluster/ })
  t.match(failing('--at', 'nowhere'), { status: 1, stderr: /10\.0\.0\.7:7433.*"nowhere"/ })
  t.match(failing('--port', '70000'), { status: 2, stderr: /--port/ })
  t.match(run('links', '--state-port', '1'), { status: 1, stderr: /dgx-spark up/ })
})

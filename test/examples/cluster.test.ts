// The example of a cluster: two nodes, one of which joins with a code.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { freePort } from '../fixtures/cluster/free-port.js'

const example = path.resolve(import.meta.dirname, '../../examples/cluster/main.js')

t.test('examples/cluster', async t => {
  const args = ['--no-warnings', example, `${await freePort()}`, `${await freePort()}`]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 })
  t.match(stdout, /^a code for one node, until 20\d\d-.*Z\nexample: first, second\n/)
  t.match(stdout, /^link to second: tls, loopback, \d+\.\d\d ms, \d+\.\d Gb\/s$/m)
  t.match(stdout, /^first → second: equal true$/m)
  for (const name of ['first', 'second']) t.match(stdout, new RegExp(`^${name}: .+, \\w+$`, 'm'))
})

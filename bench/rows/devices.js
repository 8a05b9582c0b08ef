// devices.js: how long a new process takes to find its devices and open backends on them: one, and four side by side. Goals of the
// cluster: 3 s for one, 5 s for four.
import assert from 'node:assert'
import { runNode } from '../processes.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Opens backends and prints the milliseconds from the first import on. @param {string} backend @param {number} count */
const script = (backend, count) => `
const start = performance.now()
const { detectDevices } = await import('#lib/cluster/devices/detect-devices.js')
const { createBackend } = await import('#lib/cluster/devices/select-backend.js')
await detectDevices('bench')
const backends = Array.from({ length: ${count} }, () => createBackend('${backend}'))
await Promise.all(backends.map(each => each.open()))
console.log(performance.now() - start)
await Promise.all(backends.map(each => each.close()))`

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* devices({ backend }) {
  for (const count of [1, 4]) {
    const run = async () => Number(await runNode('--input-type=module', '--eval', script(backend, count)))
    yield {
      name: 'open devices',
      shape: count === 1 ? '1 backend' : `${count} backends side by side`,
      dtype: '-',
      pairs: 5,
      run,
      check: async () => assert.ok((await run()) > 0),
    }
  }
}

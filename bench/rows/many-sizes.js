// many-sizes.js: processes that run a model for as many different sizes as there are runs, and the memory they grow to.
import { feedBytes } from '../feeds.js'
import { threadsOf } from '../harness.js'
import { many, manySizes, openNet } from '../nets.js'
import { detail, expectSameSums, repeatedTask } from '../processes.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { ProcessResult } from '../model-process.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */

const name = 'many sizes'
const dtype = 'f32'
const pairs = 3

/** @param {Kernels} kernels @param {Peer | null} peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* manySizesRows({ backend }, peer, wanted) {
  if (backend !== 'cpu' || !peer) return
  const marks = [0.1, 0.5, 1].map(share => Math.round(share * many.count))
  for (const net of Object.keys(many.nets)) {
    const row = { name, shape: `${net} x${many.count}`, dtype }
    if (!wanted(row)) continue
    const { file, inputs, dispose } = await openNet(net)
    const sizes = manySizes(net)
    const task = { file, inputs, sizes, marks, options: { threads: threadsOf() } }
    const ours = repeatedTask({ ...task, engine: 'dgx-spark' })
    const theirs = repeatedTask({ ...task, engine: 'onnxruntime-node' })
    yield {
      ...row,
      pairs,
      bytes: sizes.reduce((sum, size) => sum + feedBytes(inputs, size), 0),
      run: ours.run,
      check: () => expectSameSums(ours, theirs),
      details: () => detailsOf(ours.results, theirs.results, marks),
      peer: { name: peer.name, run: theirs.run },
    }
    await dispose()
  }
}

/** @param {ProcessResult[]} ours @param {ProcessResult[]} theirs @param {number[]} marks */
function detailsOf(ours, theirs, marks) {
  const runs = detail('ms', ours, theirs, ({ runsMs }) => runsMs)
  const cpu = detail('ms', ours, theirs, ({ cpuMs }) => cpuMs)
  const memory = marks.map((mark, i) => [
    `RSS, run ${mark}`,
    detail('MB', ours, theirs, ({ rssMB }) => rssMB[i] ?? Number.NaN),
  ])
  const growth = detail('MB', ours, theirs, ({ rssMB }) => (rssMB[2] ?? 0) - (rssMB[1] ?? 0))
  return {
    runs,
    'processor time': cpu,
    ...Object.fromEntries(memory),
    'RSS, growth in the second half': growth,
  }
}

// model-process.js: a process that imports one package, loads a model and runs it once for each of some sizes; prints what
// that took as JSON.
import { packages } from './engines.js'
import { feedsOf } from './feeds.js'

/** @import { EngineOptions, EngineTensor } from './engines.js' */
/** @import { Input, Size } from './feeds.js' */

/**
 * @typedef {object} Task
 * @property {keyof typeof packages} engine
 * @property {string} file
 * @property {EngineOptions} options
 * @property {Input[]} inputs
 * @property {Size[]} sizes
 * @property {number[]} marks numbers of runs behind which resident memory is read
 */

/**
 * @typedef {object} ProcessResult
 * @property {number} importMs
 * @property {number} startMs to load the model and run it for the first size
 * @property {number} runsMs for all sizes but the first
 * @property {number} cpuMs that all threads of the process computed, from its start to its last run
 * @property {number[]} rssMB by mark, above that of the process before the import
 * @property {number} peakMB the highest, above the same
 * @property {number} checksum of all outputs of the last run
 */

/** @param {Record<string, EngineTensor>} outputs */
function checksum(outputs) {
  let sum = 0
  for (const { data } of Object.values(outputs)) for (const value of data) sum += Math.abs(Number(value))
  return sum
}

/** @param {Task} task @returns {Promise<ProcessResult>} */
async function runTask({ engine, file, options, inputs, sizes, marks }) {
  const idle = process.memoryUsage.rss()
  const rssMB = []
  const begin = performance.now()
  const opened = await packages[engine]()
  const imported = performance.now()
  const model = await opened.open(file, options)
  let [outputs, first] = [/** @type {Record<string, EngineTensor>} */ ({}), 0]
  for (const [i, size] of sizes.entries()) {
    outputs = await model.run(feedsOf(opened, inputs, size))
    if (i === 0) first = performance.now()
    if (marks.includes(i + 1)) rssMB.push((process.memoryUsage.rss() - idle) / 2 ** 20)
  }
  const end = performance.now()
  const { user, system } = process.cpuUsage()
  return {
    importMs: imported - begin,
    startMs: first - imported,
    runsMs: end - first,
    cpuMs: (user + system) / 1000,
    rssMB,
    peakMB: process.resourceUsage().maxRSS / 2 ** 10 - idle / 2 ** 20,
    checksum: checksum(outputs),
  }
}

console.log(JSON.stringify(await runTask(JSON.parse(process.argv[2] ?? ''))))

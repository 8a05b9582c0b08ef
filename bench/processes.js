// processes.js: processes of Node.js whose time and memory rows measure.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { near } from './checks.js'
import { median } from './harness.js'

/** @import { Detail } from './harness.js' */
/** @import { ProcessResult, Task } from './model-process.js' */

const root = path.resolve(import.meta.dirname, '..')
const execute = promisify(execFile)

/** Runs Node.js with these arguments; what it prints. @param {string[]} args */
export async function runNode(...args) {
  const { stdout } = await execute(process.execPath, args, { cwd: root, maxBuffer: 2 ** 24 })
  return stdout
}

/** @typedef {{ run: () => Promise<void>, results: ProcessResult[] }} RepeatedTask `results` of its processes so far */

/** @param {Task} task @returns {RepeatedTask} */
export function repeatedTask(task) {
  const script = path.join(import.meta.dirname, 'model-process.js')
  /** @type {ProcessResult[]} */
  const results = []
  const run = async () => {
    results.push(JSON.parse(await runNode(script, JSON.stringify(task))))
  }
  return { run, results }
}

/** Throws unless both give the same outputs; forgets these processes. @param {RepeatedTask} ours that have run @param {RepeatedTask} theirs */
export async function expectSameSums(ours, theirs) {
  await theirs.run()
  near(ours.results.at(-1)?.checksum, theirs.results.at(-1)?.checksum, 1e-3)
  ours.results.length = 0
  theirs.results.length = 0
}

/**
 * The medians of a number that processes told.
 * @template T @param {Detail['unit']} unit @param {T[]} ours @param {T[]} theirs @param {(result: T) => number} read
 * @returns {Detail}
 */
export const detail = (unit, ours, theirs, read) => ({
  unit,
  ours: median(ours.map(read)),
  peer: median(theirs.map(read)),
})

// start.js: processes that start: an import, the command line, a model loaded and run once, and the memory that it takes.
import assert from 'node:assert'
import { statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Model } from 'dgx-spark'
import { threadsOf } from '../harness.js'
import { modelSources, randomFeeds } from '../model-sources.js'
import { start as startNets } from '../nets.js'
import { detail, expectSameSums, repeatedTask, runNode } from '../processes.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { EngineOptions } from '../engines.js' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */
/** @import { Wanted } from './models.js' */

const dtype = 'f32'
const lightPairs = 21
const modelPairs = 11

/** How models are loaded, by the name of the variant. @type {Record<string, (folder: string) => Partial<EngineOptions>>} */
const options = {
  '': () => ({}),
  small: () => ({ memory: 'small' }),
  cache: folder => ({ weightCache: { folder } }),
}

/** @param {Kernels} kernels @param {Peer | null} peer @param {Wanted} wanted @returns {AsyncGenerator<Case>} */
export async function* start({ backend }, peer, wanted) {
  if (backend !== 'cpu' || !peer) return
  yield importOf(peer)
  yield help()
  for (const model of startNets.models) {
    const variants = startNets.heavy.includes(model) ? [...Object.keys(options)] : ['']
    const rows = variants.map(variant => ({
      name: 'start',
      shape: variant === '' ? model : `${model}, ${variant}`,
      dtype,
      variant,
    }))
    if (rows.some(wanted)) yield* startsOf(model, peer, rows.filter(wanted))
  }
}

/** @param {Peer} peer @returns {Case} */
function importOf(peer) {
  const ours = repeatedImport('dgx-spark')
  const theirs = repeatedImport('onnxruntime-node')
  return {
    name: 'import',
    shape: 'process',
    dtype,
    pairs: lightPairs,
    run: ours.run,
    check: () => assert.ok(ours.times.splice(0).every(time => time > 0)),
    details: () => ({ import: detail('ms', ours.times, theirs.times, time => time) }),
    peer: { name: peer.name, run: theirs.run },
  }
}

/** @param {string} name of a package */
function repeatedImport(name) {
  const script = `const start = performance.now(); await import('${name}'); console.log(performance.now() - start)`
  /** @type {number[]} */
  const times = []
  const run = async () => {
    times.push(Number(await runNode('--input-type=module', '--eval', script)))
  }
  return { run, times }
}

/** @returns {Case} */
function help() {
  const run = () => runNode('dist/cli/main.js', '--help')
  return {
    name: '--help',
    shape: 'process',
    dtype,
    pairs: lightPairs,
    run,
    check: async () => assert.match(await run(), /dgx-spark/),
    details: ({ ours, peer }) => ({ 'above Node.js alone': { unit: 'ms', ours: ours - peer, peer: 0 } }),
    peer: { name: 'node -e 0', run: () => runNode('-e', '0') },
  }
}

/** @param {string} name of a model @param {Peer} peer @param {{ name: string, shape: string, dtype: string, variant: string }[]} rows @returns {AsyncGenerator<Case>} */
async function* startsOf(name, peer, rows) {
  const source = modelSources().find(source => source.name === name)
  if (!source) return
  const { file, dispose } = await source.open()
  const model = await Model.load(file, { backend: 'cpu' })
  const inputs = Object.entries(randomFeeds(model)).map(([name, { dtype, shape }]) => ({
    name,
    dtype,
    shape: [...shape],
  }))
  model.dispose()
  const task = { file, inputs, sizes: [{}], marks: [1] }
  const threads = threadsOf()
  const cache = await mkdtemp(path.join(tmpdir(), 'dgx-spark-bench-weights-'))
  for (const { variant, ...row } of rows) {
    const own = { threads, ...options[variant]?.(cache) }
    const ours = repeatedTask({ ...task, engine: 'dgx-spark', options: own })
    const theirs = repeatedTask({ ...task, engine: 'onnxruntime-node', options: { threads } })
    const both = /** @type {const} */ ([ours.results, theirs.results])
    yield {
      ...row,
      pairs: modelPairs,
      bytes: statSync(file).size,
      run: ours.run,
      check: () => expectSameSums(ours, theirs),
      details: () => ({
        'load and first run': detail('ms', ...both, ({ startMs }) => startMs),
        'processor time': detail('ms', ...both, ({ cpuMs }) => cpuMs),
        RSS: detail('MB', ...both, ({ rssMB }) => rssMB[0] ?? Number.NaN),
        'peak RSS': detail('MB', ...both, ({ peakMB }) => peakMB),
      }),
      peer: { name: peer.name, run: theirs.run },
    }
  }
  await rm(cache, { recursive: true })
  await dispose()
}

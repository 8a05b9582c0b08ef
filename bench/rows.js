// rows.js: the rows of `npm run bench`. Each is checked against a plain reference before it is timed.
import { attention, rotary } from './rows/attention.js'
import { blocks } from './rows/blocks.js'
import { byteRows } from './rows/bytes.js'
import { casts, copyRows } from './rows/casts.js'
import { compact } from './rows/compact.js'
import { compile } from './rows/compile.js'
import { conv } from './rows/conv.js'
import { convInteger } from './rows/conv-integer.js'
import { devices } from './rows/devices.js'
import { dora } from './rows/dora.js'
import { doraLayer } from './rows/dora-layer.js'
import { expertRows } from './rows/experts.js'
import { framesRows } from './rows/frames.js'
import { functions } from './rows/functions.js'
import { gemm } from './rows/gemm.js'
import { gemv } from './rows/gemv.js'
import { growingPast } from './rows/growing-past.js'
import { linear } from './rows/linear.js'
import { linearInteger } from './rows/linear-integer.js'
import { links } from './rows/links.js'
import { manySizesRows } from './rows/many-sizes.js'
import { models } from './rows/models.js'
import { norm } from './rows/norm.js'
import { paged } from './rows/paged.js'
import { placement } from './rows/placement.js'
import { pointwiseDepthwise } from './rows/pointwise-depthwise.js'
import { pools } from './rows/pools.js'
import { products } from './rows/products.js'
import { resize } from './rows/resize.js'
import { sampling } from './rows/sampling.js'
import { sideBySide } from './rows/side-by-side.js'
import { simulation } from './rows/simulation.js'
import { singleThread } from './rows/single-thread.js'
import { sizes } from './rows/sizes.js'
import { start } from './rows/start.js'
import { text } from './rows/text.js'
import { threads } from './rows/threads.js'
import { training } from './rows/training.js'
import { trainingStep } from './rows/training-step.js'
import { zooRows } from './rows/zoo.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from './harness.js' */
/** @import { Peer } from './peer.js' */

/** @import { Wanted } from './rows/models.js' */

/**
 * @typedef {object} Family
 * @property {(kernels: Kernels, peer: Peer | null, wanted: Wanted) => AsyncGenerator<Case>} rows
 * @property {string[]} [targets] devices on which some of them have a target
 * @property {string[]} [named] devices on which they are run only where the family is named
 */

/** The files of rows. @type {Record<string, Family>} */
const families = {
  casts: { rows: casts, targets: ['cpu', 'cuda'] },
  'single-thread': { rows: singleThread, targets: ['cpu'] },
  linear: { rows: linear },
  bytes: { rows: byteRows },
  'linear-integer': { rows: linearInteger, targets: ['cuda'] },
  'conv-integer': { rows: convInteger },
  links: { rows: links, named: ['cpu', 'cuda'] },
  blocks: { rows: blocks },
  experts: { rows: expertRows },
  frames: { rows: framesRows },
  gemm: { rows: gemm, targets: ['cpu'] },
  gemv: { rows: gemv, targets: ['cpu'] },
  conv: { rows: conv },
  compact: { rows: compact },
  copies: { rows: copyRows },
  'pointwise-depthwise': { rows: pointwiseDepthwise },
  attention: { rows: attention },
  paged: { rows: paged, targets: ['cuda'] },
  norm: { rows: norm },
  functions: { rows: functions },
  pools: { rows: pools },
  resize: { rows: resize },
  rotary: { rows: rotary },
  products: { rows: products },
  dora: { rows: dora, targets: ['cuda'] },
  'dora-layer': { rows: doraLayer, targets: ['cpu', 'cuda'] },
  sizes: { rows: sizes, targets: ['cpu'] },
  'growing-past': { rows: growingPast, targets: ['cpu'] },
  'many-sizes': { rows: manySizesRows, targets: ['cpu'] },
  devices: { rows: devices },
  start: { rows: start, targets: ['cpu'] },
  threads: { rows: threads, targets: ['cpu'] },
  placement: { rows: placement },
  'side-by-side': { rows: sideBySide, targets: ['cuda'] },
  simulation: { rows: simulation, targets: ['cpu', 'cuda'] },
  training: { rows: training },
  'training-step': { rows: trainingStep, targets: ['cpu', 'cuda'] },
  sampling: { rows: sampling },
  text: { rows: text, targets: ['cuda'], named: ['cpu'] },
  models: { rows: models, targets: ['cpu'] },
  zoo: { rows: zooRows, targets: ['cpu'], named: ['cuda'] },
  compile: { rows: compile, targets: ['cpu'] },
}

export const familyNames = Object.keys(families)

/**
 * Rows, made lazily: a row's data exists only while it runs.
 * @param {Kernels} kernels @param {Peer | null} peer
 * @param {{ families: RegExp | undefined, withTargets: boolean, wanted: Wanted }} choice rows of the families with such names or
 * of all; only those of families with targets; some families leave out what is not wanted, others do not know it beforehand
 * @returns {AsyncGenerator<Case>}
 */
export async function* rows(kernels, peer, { families: names, withTargets, wanted }) {
  for (const [name, { rows, targets, named }] of Object.entries(families)) {
    if (names ? !names.test(name) : named?.includes(kernels.backend)) continue
    if (withTargets && !targets?.includes(kernels.backend)) continue
    yield* rows(kernels, peer, wanted)
  }
}

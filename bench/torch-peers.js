// torch-peers.js: PyTorch and PEFT on the same device, in processes of their own, when a Python with them is found:
// DGX_SPARK_PYTHON, or python3.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { exportModel, peeredModels } from './model-sources.js'
import { modelTolerances } from './rows/models.js'

/** @import { Limits, Row } from './harness.js' */

/**
 * @typedef {object} PeerRow
 * @property {string} name of our row
 * @property {string} shape of our row
 * @property {string} dtype of our row
 * @property {string} peer what was timed
 * @property {number} medianMs
 * @property {number} p10Ms
 * @property {number} p90Ms
 * @property {string} [error] the reason for a missing time
 * @property {number} [ratio] peer's median time over ours: above 1 we are faster
 * @property {number} [rate] in `unit`, that of our row: both do the same work
 * @property {Row['unit']} [unit]
 */

/**
 * @typedef {object} Settings where and how peers are timed
 * @property {'cpu' | 'cuda'} device
 * @property {number} threads on a CPU
 * @property {boolean} cpuTime on a CPU: the clock is that of all threads of the process
 */

const python = process.env.DGX_SPARK_PYTHON ?? 'python3'
const folder = path.join(import.meta.dirname, 'peers')
const minutes = 60_000
const perScript = 4 * minutes
/** All models take at most about so long: torch.compile takes up to a minute for each. */
const allModels = 5 * minutes

/** On a CPU ONNX Runtime is the peer of the other rows. @param {Row} row @param {Settings} settings */
const isAsked = ({ name, sizes }, { device }) =>
  sizes !== undefined && (device === 'cuda' || name === 'training step') && !isText({ name })

/** @param {Pick<Row, 'name'>} row */
const isText = ({ name }) => name.startsWith('text ')

/**
 * Whether Python can import a module and, for torch, reach the device.
 * @param {'torch' | 'peft' | 'transformers'} name @param {string} device
 */
function found(name, device) {
  const reach = name === 'torch' && device === 'cuda' ? '; assert torch.cuda.is_available()' : ''
  return spawnSync(python, ['-c', `import ${name}${reach}`], { stdio: 'ignore' }).status === 0
}

/**
 * Runs a script of bench/peers: the lines of JSON that it prints, and why it ended early, if it did.
 * @param {string} script @param {object} input @param {number} timeout
 */
function ask(script, input, timeout = perScript) {
  const { status, signal, stdout, stderr } = spawnSync(python, [path.join(folder, script)], {
    input: JSON.stringify(input),
    encoding: 'utf8',
    timeout,
    maxBuffer: 2 ** 26,
  })
  const problem = status === 0 ? '' : `${script} ended early (${signal ?? status})`
  if (problem) console.log(`${problem}:\n${stderr}`)
  const whole = stdout.slice(0, stdout.lastIndexOf('\n') + 1)
  const lines = whole.split('\n').filter(Boolean)
  return { answers: lines.map(line => JSON.parse(line)), problem }
}

/** What PyTorch reaches on this GPU; empty where it is not found. @returns {Partial<Limits>} */
export const torchLimits = () =>
  found('torch', 'cuda') ? (ask('torch_peer.py', { limits: true }).answers[0] ?? {}) : {}

/** Rows with the first of their peers, where none was met in this process. @param {Row[]} rows @param {PeerRow[]} peers */
export function besidePeers(rows, peers) {
  return rows.map(row => {
    const first = peers.find(({ ratio, ...peer }) => ratio !== undefined && isPeerOf(peer, row))
    return row.peer || !first ? row : { ...row, peer: first.peer, peerRatio: first.ratio ?? Number.NaN }
  })
}

/** @param {Pick<PeerRow, 'name' | 'shape' | 'dtype'>} peer @param {Row} row */
const isPeerOf = (peer, row) => row.name === peer.name && row.shape === peer.shape && row.dtype === peer.dtype

/** The peers of our rows. @param {Row[]} rows @param {Settings} settings @returns {Promise<PeerRow[]>} */
export async function torchPeers(rows, settings) {
  const layers = rows.filter(row => isAsked(row, settings))
  const models = peeredModels.flatMap(model =>
    rows.filter(({ name, shape }) => name === 'models' && shape === model),
  )
  const texts = rows.filter(row => isText(row) && settings.device === 'cuda')
  if (layers.length + models.length + texts.length === 0) return []
  if (!found('torch', settings.device)) {
    console.log(`no ${python} with torch${settings.device === 'cuda' ? ' and a GPU' : ''}: no such peers`)
    return []
  }
  const measured = [
    ...layerPeers(layers, settings),
    ...(await modelPeers(models, settings)),
    ...textPeers(texts, settings),
  ]
  return measured.map(peer => {
    const ours = rows.find(row => isPeerOf(peer, row))
    if (!ours || peer.error) return peer
    const ratio = peer.medianMs / ours.medianMs
    return { ...peer, ratio, rate: ours.rate / ratio, unit: ours.unit }
  })
}

/** @param {Row[]} rows @param {Settings} settings @returns {PeerRow[]} */
function layerPeers(rows, settings) {
  if (rows.length === 0) return []
  const cases = rows.map(({ sizes, ...row }) => ({ ...caseOf(row), ...sizes }))
  const scripts = [
    ...(settings.device === 'cuda' ? ['torch_peer.py'] : []),
    ...(found('peft', settings.device) ? ['peft_peer.py'] : []),
  ]
  return scripts.flatMap(script => answersTo(script, cases, settings))
}

/** What a script says of cases; where it ended early, why. @param {string} script @param {ReturnType<typeof caseOf>[]} cases @param {Settings} settings @returns {PeerRow[]} */
function answersTo(script, cases, settings) {
  const { answers, problem } = ask(script, { ...settings, cases })
  const about = answers.at(-1) ?? cases[0]
  return problem ? [...answers, failed(about, script, problem)] : answers
}

/**
 * Language models in transformers, which has them in bf16: those times stand beside our rows of every dtype.
 * @param {Row[]} rows @param {Settings} settings @returns {PeerRow[]}
 */
export function textPeers(rows, settings) {
  if (rows.length === 0 || !found('transformers', settings.device)) return []
  const cases = new Map(rows.map(({ sizes, ...row }) => [row.name + row.shape, { ...caseOf(row), ...sizes }]))
  const answers = answersTo('text_peer.py', [...cases.values()], settings)
  return rows.flatMap(({ name, shape, dtype }) =>
    answers.filter(peer => peer.name === name && peer.shape === shape).map(peer => ({ ...peer, dtype })),
  )
}

/** Graphs of models in PyTorch, a process each. @param {Row[]} rows @param {Settings} settings */
async function modelPeers(rows, settings) {
  /** @type {PeerRow[]} */
  const measured = []
  const end = performance.now() + allModels
  for (const row of rows) {
    const left = Math.min(perScript, Math.floor(end - performance.now()))
    if (left <= 0) {
      measured.push(failed(row, 'PyTorch', 'no time was left for it'))
      continue
    }
    const { folder, dispose } = await exportModel(row.shape)
    const about = { ...caseOf(row), folder, tolerance: modelTolerances[row.dtype] }
    const { answers, problem } = ask('graph_peer.py', { ...settings, cases: [about] }, left)
    await dispose()
    measured.push(...answers, ...(problem ? [failed(row, 'PyTorch', problem)] : []))
  }
  return measured
}

/** @param {Pick<PeerRow, 'name' | 'shape' | 'dtype'>} row */
const caseOf = ({ name, shape, dtype }) => ({ name, shape, dtype, compiles: true })

/** @param {Pick<PeerRow, 'name' | 'shape' | 'dtype'>} row @param {string} peer @param {string} error @returns {PeerRow} */
const failed = ({ name, shape, dtype }, peer, error) => {
  const none = { medianMs: Number.NaN, p10Ms: Number.NaN, p90Ms: Number.NaN }
  return { name, shape, dtype, peer, ...none, error }
}

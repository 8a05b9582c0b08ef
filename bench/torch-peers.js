// torch-peers.js: PyTorch and PEFT on the same device, in processes of their own, when a Python with them is found:
// DGX_SPARK_PYTHON, or python3.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { exportModel, isPeered } from './model-sources.js'
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
 * @property {string} [error] why there is no time
 * @property {number} [ratio] peer's median time over ours: above 1 we are faster
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

/** On a CPU ONNX Runtime is the peer of the other rows. @param {Row} row @param {Settings} settings */
const isAsked = ({ name, sizes }, { device }) =>
  sizes !== undefined && (device === 'cuda' || name === 'training step')

/** Whether Python can import a module and, for torch, reach the device. @param {'torch' | 'peft'} name @param {string} device */
function found(name, device) {
  const reach = name === 'torch' && device === 'cuda' ? '; assert torch.cuda.is_available()' : ''
  return spawnSync(python, ['-c', `import ${name}${reach}`], { stdio: 'ignore' }).status === 0
}

/** Runs a script of bench/peers; what it prints as JSON, or null. @param {string} script @param {object} input */
function ask(script, input) {
  const { status, signal, stdout, stderr } = spawnSync(python, [path.join(folder, script)], {
    input: JSON.stringify(input),
    encoding: 'utf8',
    timeout: 4 * minutes,
    maxBuffer: 2 ** 26,
  })
  if (status === 0) return JSON.parse(stdout)
  console.log(`${script} failed (${signal ?? status}):\n${stderr}`)
  return null
}

/** What PyTorch reaches on this GPU; empty where it is not found. @returns {Partial<Limits>} */
export const torchLimits = () =>
  found('torch', 'cuda') ? (ask('torch_peer.py', { limits: true }) ?? {}) : {}

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
  const models = rows.filter(({ name, shape }) => name === 'models' && isPeered(shape))
  if (layers.length + models.length === 0) return []
  if (!found('torch', settings.device)) {
    console.log(
      `no torch in ${python}${settings.device === 'cuda' ? ' that reaches the GPU' : ''}: no such peers`,
    )
    return []
  }
  const cases = layers.map(({ name, shape, dtype, sizes }) => ({
    name,
    shape,
    dtype,
    compiles: true,
    ...sizes,
  }))
  const scripts = [
    ...(settings.device === 'cuda' ? ['torch_peer.py'] : []),
    ...(found('peft', settings.device) ? ['peft_peer.py'] : []),
  ]
  /** @type {PeerRow[]} */
  const measured =
    cases.length > 0 ? scripts.flatMap(script => ask(script, { ...settings, cases })?.rows ?? []) : []
  for (const row of models) measured.push(...(await modelPeers(row, settings)))
  return measured.map(peer => {
    const ours = rows.find(row => isPeerOf(peer, row))
    return ours && !peer.error ? { ...peer, ratio: peer.medianMs / ours.medianMs } : peer
  })
}

/** The graph of a model in PyTorch. @param {Row} row @param {Settings} settings @returns {Promise<PeerRow[]>} */
async function modelPeers({ name, shape, dtype }, settings) {
  const exported = await exportModel(shape)
  const tolerance = modelTolerances[dtype]
  const about = { name, shape, dtype, tolerance, folder: exported.folder, compiles: true }
  const answer = ask('graph_peer.py', { ...settings, cases: [about] })
  await exported.dispose()
  return answer?.rows ?? []
}

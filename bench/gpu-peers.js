// gpu-peers.js: PyTorch and PEFT on the same GPU, in processes of their own, when a Python with them is found.
import { spawnSync } from 'node:child_process'
import path from 'node:path'

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

const python = 'python3'
const folder = path.join(import.meta.dirname, 'peers')

/** Whether Python can import a module and, for torch, reach the GPU. @param {'torch' | 'peft'} name */
function found(name) {
  const script = name === 'torch' ? 'import torch; assert torch.cuda.is_available()' : `import ${name}`
  return spawnSync(python, ['-c', script], { stdio: 'ignore' }).status === 0
}

/** Runs a script of bench/peers; what it prints as JSON, or null. @param {string} script @param {object} input */
function ask(script, input) {
  const { status, stdout, stderr } = spawnSync(python, [path.join(folder, script)], {
    input: JSON.stringify(input),
    encoding: 'utf8',
    timeout: 240_000,
    maxBuffer: 2 ** 26,
  })
  if (status === 0) return JSON.parse(stdout)
  console.log(`${script} failed:\n${stderr}`)
  return null
}

/** What PyTorch reaches on this GPU; empty where it is not found. @returns {Partial<Limits>} */
export const torchLimits = () => (found('torch') ? (ask('torch_peer.py', { limits: true }) ?? {}) : {})

/** Rows with the first of their peers, where none was met in this process. @param {Row[]} rows @param {PeerRow[]} peers */
export function besidePeers(rows, peers) {
  return rows.map(row => {
    const first = peers.find(({ ratio, ...peer }) => ratio !== undefined && isPeerOf(peer, row))
    return row.peer || !first ? row : { ...row, peer: first.peer, peerRatio: first.ratio ?? Number.NaN }
  })
}

/** @param {Pick<PeerRow, 'name' | 'shape' | 'dtype'>} peer @param {Row} row */
const isPeerOf = (peer, row) => row.name === peer.name && row.shape === peer.shape && row.dtype === peer.dtype

/** The peers of our rows. @param {Row[]} rows @returns {PeerRow[]} */
export function gpuPeers(rows) {
  const cases = rows
    .filter(row => row.sizes)
    .map(({ name, shape, dtype, sizes }) => ({ name, shape, dtype, ...sizes }))
  if (!found('torch')) {
    console.log('no python3 with torch and a GPU: no peers')
    return []
  }
  const scripts = ['torch_peer.py', ...(found('peft') ? ['peft_peer.py'] : [])]
  /** @type {PeerRow[]} */
  const measured = scripts.flatMap(script => ask(script, { cases })?.rows ?? [])
  return measured.map(peer => {
    const ours = rows.find(row => isPeerOf(peer, row))
    return ours && !peer.error ? { ...peer, ratio: peer.medianMs / ours.medianMs } : peer
  })
}

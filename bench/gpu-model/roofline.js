// roofline.js: seconds of work on a machine, and the efficiencies that fit measured times best.
import { flopRate } from '#lib/cluster/placement/fleet.js'

/** @import { Machine } from './machines.js' */

/**
 * @typedef {object} Work
 * @property {number} bytes read and written
 * @property {Readonly<Record<string, number>>} flops by the dtype that multiplies
 * @property {number} launches of kernels, one behind another
 */

/**
 * @typedef {object} Efficiency
 * @property {number} memory fraction of the machine's bandwidth
 * @property {number} arithmetic fraction of the machine's rates
 * @property {number} launchSeconds of the shortest kernels of a captured graph
 */

/** @typedef {'memory' | 'arithmetic' | 'launches'} Roof */

/** @typedef {{ work: Work, machine: Machine, seconds: number }} Measurement */

/** Seconds of each roof by itself. @param {Work} work @param {Machine} machine @param {Efficiency} efficiency @returns {Record<Roof, number>} */
export function roofs({ bytes, flops, launches }, machine, { memory, arithmetic, launchSeconds }) {
  const rate = (/** @type {string} */ dtype) => arithmetic * flopRate({ ...machine, headroom: 1 }, dtype)
  return {
    memory: bytes / (memory * machine.bandwidth),
    arithmetic: Object.entries(flops).reduce((sum, [dtype, count]) => sum + count / rate(dtype), 0),
    launches: launches * launchSeconds,
  }
}

/** @param {Work} work @param {Machine} machine @param {Efficiency} efficiency */
export const estimate = (work, machine, efficiency) =>
  Math.max(...Object.values(roofs(work, machine, efficiency)))

/**
 * The efficiency with the least squares of the logarithms of estimated over measured times: of each roof by the measurements of
 * work that it bounds.
 * @param {Record<Roof, readonly Measurement[]>} measurements at least one of each @returns {Efficiency}
 */
export function fit(measurements) {
  const ideal = { memory: 1, arithmetic: 1, launchSeconds: 1 }
  const [memory, arithmetic, launches] = /** @type {const} */ (['memory', 'arithmetic', 'launches']).map(
    roof => {
      const all = measurements[roof]
      const logarithms = all.map(({ work, machine, seconds }) =>
        Math.log(roofs(work, machine, ideal)[roof] / seconds),
      )
      return Math.exp(logarithms.reduce((sum, value) => sum + value, 0) / all.length)
    },
  )
  return { memory, arithmetic, launchSeconds: 1 / launches }
}

/** Estimated over measured time, less one. @param {Measurement} measurement @param {Efficiency} efficiency */
export const errorOf = ({ work, machine, seconds }, efficiency) =>
  estimate(work, machine, efficiency) / seconds - 1

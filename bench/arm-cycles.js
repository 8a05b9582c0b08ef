// arm-cycles.js: static estimates of the main loops of matrix products on arm64: cycles that llvm-mca counts for an iteration, where
// all loads hit the first-level cache. With a cross compiler, on any machine: `node bench/arm-cycles.js [cortex-x925 …]`.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const root = path.resolve(import.meta.dirname, '..')
const compiler = 'aarch64-linux-gnu-g++'
const disassembler = 'aarch64-linux-gnu-objdump'
const analyser = 'llvm-mca-19'

/**
 * @typedef {object} Loop
 * @property {string} products what it multiplies
 * @property {string} unit the file of the instruction set
 * @property {string} isa the flag that it is compiled with, as native/cpu_isa.cmake has it
 * @property {string} instruction that multiplies
 * @property {number} macs multiply-adds of one such instruction
 */

/** @type {readonly Loop[]} */
const loops = [
  { products: 'f32', unit: 'isa_neon', isa: 'armv8-a', instruction: 'fmla', macs: 4 },
  { products: 'bf16', unit: 'isa_neoni8mm', isa: 'armv8.2-a+bf16+i8mm', instruction: 'bfmmla', macs: 16 },
  { products: 'int8', unit: 'isa_neoni8mm', isa: 'armv8.2-a+bf16+i8mm', instruction: 'usmmla', macs: 32 },
]

/** @typedef {{ at: number, text: string }} Instruction */

/** The instructions of each function of a disassembly. @param {string} disassembly @returns {Instruction[][]} */
function functionsOf(disassembly) {
  return disassembly
    .split(/\n(?=[0-9a-f]+ <.*>:\n)/)
    .slice(1)
    .map(text =>
      [...text.matchAll(/^\s+([0-9a-f]+):\t(.*)$/gm)].map(([, at = '', rest = '']) => ({
        at: Number.parseInt(at, 16),
        text: rest.replace(/\s*(\/\/|;).*$/, ''),
      })),
    )
}

/** Where a branch goes to, or undefined. @param {Instruction} instruction */
function targetOf({ text }) {
  const target = text.match(/^(?:b\.\w+|cbn?z|tbn?z)\s.*?\b([0-9a-f]+) </)?.[1]
  return target === undefined ? undefined : Number.parseInt(target, 16)
}

/**
 * The innermost loop whose instructions multiply most: the texts of its instructions, the last one of which goes back to the first.
 * @param {string} disassembly of `objdump -d --no-show-raw-insn` @param {string} instruction
 */
export function mainLoop(disassembly, instruction) {
  /** @type {{ share: number, body: string[] }} */
  let best = { share: 0, body: [] }
  for (const code of functionsOf(disassembly))
    for (const [end, branch] of code.entries()) {
      const start = code.findIndex(({ at }) => at === targetOf(branch))
      if (start < 0 || start >= end) continue
      const body = code.slice(start, end + 1)
      if (body.slice(0, -1).some(one => targetOf(one) !== undefined)) continue
      const share =
        productsOf(
          body.map(({ text }) => text),
          instruction,
        ) / body.length
      if (share > best.share) best = { share, body: body.map(({ text }) => text) }
    }
  return best.body
}

/** @param {readonly string[]} body @param {string} instruction */
const productsOf = (body, instruction) => body.filter(text => text.startsWith(`${instruction}\t`)).length

/** Cycles of an iteration of a loop on a processor, in the steady state. @param {readonly string[]} body @param {string} cpu */
function cyclesOf(body, cpu) {
  const iterations = 200
  const input = [
    'loop:',
    ...body.slice(0, -1),
    (body.at(-1) ?? '').replace(/[0-9a-f]+ <.*>$/, 'loop'),
    '',
  ].join('\n')
  const options = ['-mtriple=aarch64', `-mcpu=${cpu}`, `-iterations=${iterations}`, '-json']
  const report = JSON.parse(execFileSync(analyser, options, { input, encoding: 'utf8' }))
  return report.CodeRegions[0].SummaryView.TotalCycles / iterations
}

/** @param {Loop} loop @param {string} folder */
function disassemble({ unit, isa }, folder) {
  const object = path.join(folder, `${unit}.o`)
  const source = path.join('native/backend/cpu/simd', `${unit}.cc`)
  const flags = ['-std=c++20', '-O3', '-DNDEBUG', '-ffp-contract=off', '-w', '-I', 'native', `-march=${isa}`]
  execFileSync(compiler, [...flags, '-c', source, '-o', object], { cwd: root })
  return execFileSync(disassembler, ['-d', '-C', '--no-show-raw-insn', object], {
    encoding: 'utf8',
    maxBuffer: 2 ** 30,
  })
}

/** @param {readonly string[]} cpus */
function main(cpus) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'arm-cycles-'))
  /** @type {Map<string, string>} */
  const units = new Map()
  try {
    console.log('| products | processor | instructions | of them multiply | cycles | multiply-adds a cycle |')
    console.log('|---|---|---|---|---|---|')
    for (const loop of loops) {
      const text = units.get(loop.unit) ?? disassemble(loop, folder)
      units.set(loop.unit, text)
      const body = mainLoop(text, loop.instruction)
      const count = productsOf(body, loop.instruction)
      for (const cpu of cpus) {
        const cycles = cyclesOf(body, cpu)
        const cells = [loop.products, cpu, body.length, count, cycles.toFixed(1)]
        console.log(`| ${cells.join(' | ')} | ${((count * loop.macs) / cycles).toFixed(1)} |`)
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const given = process.argv.slice(2)
  try {
    main(given.length > 0 ? given : ['cortex-x925', 'cortex-a725', 'neoverse-v2'])
  } catch (error) {
    const { code, path: command } = /** @type {NodeJS.ErrnoException} */ (error)
    if (code !== 'ENOENT') throw error
    console.error(
      `${command} is not installed: this needs ${compiler} (g++-aarch64-linux-gnu) and ${analyser} (llvm-19)`,
    )
    process.exitCode = 1
  }
}

// main.js: compiles every kernel and prints what its machine code tells: npm run gpu:static [-- names] [--write]. With --write
// the figures of those that are printed become their budgets; without it a kernel that is worse than its budget ends the run with
// code 1. --fatbins=folder reads kernels that are compiled already, for the targets that they are compiled for. Instead, --plans
// prints what plans of decoders, encoders and chains of convolutions move and launch, and --memory what accesses to memory take of kernels that run on the host.
import { parseCommandLine } from '../command-line.js'
import { budgetsOf, readBudgets, worse, writeBudgets } from './budgets.js'
import { compileKernels, nvccRelease } from './compile.js'
import { figuresOfFolder, targets } from './figures.js'
import { gpus } from './occupancy.js'
import { figuresTable } from './table.js'

const { values, positionals } = parseCommandLine({
  allowPositionals: true,
  options: {
    write: { type: 'boolean', default: false },
    fatbins: { type: 'string' },
    plans: { type: 'boolean', default: false },
    memory: { type: 'boolean', default: false },
  },
})
if (values.plans) {
  const { prefillTable, trafficTable } = await import('./plans.js')
  const { encoderTable } = await import('./encoders.js')
  const { launchTable } = await import('./launches.js')
  const { imageTable } = await import('./images.js')
  const tables = [
    await trafficTable(),
    launchTable('Q4_K'),
    await prefillTable('Q4_K', 'f32'),
    await prefillTable('NVFP4', 'nvfp4'),
    await prefillTable('NVFP4', 'nvfp4', 1),
    await encoderTable(),
    await imageTable(),
  ]
  console.log(tables.join('\n\n'))
  process.exit()
}
const chosen = (/** @type {string} */ name) => positionals.every(part => name.includes(part))
if (values.memory) {
  const { caseFigures, memoryTable } = await import('./memory.js')
  console.log(memoryTable(caseFigures().filter(({ kernel }) => chosen(kernel))))
  process.exit()
}
const nvcc = nvccRelease()
if (!nvcc) {
  console.error('nvcc is not installed: there is no machine code to read')
  process.exit(1)
}
const folder = values.fatbins ?? compileKernels()
for (const target of targets) {
  const figures = await figuresOfFolder(folder, target)
  if (figures.length === 0) continue
  const shown = figures.filter(({ name }) => chosen(name))
  console.log(`\n${gpus[target].name}, sm_${target}: ${figures.length} kernels\n${figuresTable(shown)}`)
  if (values.write) {
    const others = positionals.length > 0 ? readBudgets()[target] : {}
    writeBudgets(nvcc, target, budgetsOf(shown, others))
    continue
  }
  const problems = worse(readBudgets()[target], figures)
  for (const problem of problems) console.error(`sm_${target}: ${problem}`)
  if (problems.length > 0) process.exitCode = 1
}

// What machine code tells of kernels: of some whose loads are known, and of those of the build against their budgets.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { type Budget, budgetsOf, readBudgets, worse } from '../../bench/gpu-static/budgets.js'
import { nvccRelease } from '../../bench/gpu-static/compile.js'
import { type Figures, figuresOfFolder, targets } from '../../bench/gpu-static/figures.js'
import { gpus, occupancy, type Target } from '../../bench/gpu-static/occupancy.js'
import { figuresTable, tensorsOfKiB } from '../../bench/gpu-static/table.js'
import { root } from '../fixtures/docs/pages.js'

const nvcc = nvccRelease()
const budgets = readBudgets()

/** Figures of the kernels of loads.cu. */
async function known(target: Target): Promise<Map<string, Figures>> {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gpu-static-'))
  const source = path.join(root, 'test/fixtures/gpu-static/loads.cu')
  const code = `arch=compute_${target},code=sm_${target}`
  execFileSync('nvcc', [
    '-fatbin',
    '-O3',
    '-gencode',
    code,
    '--compress-mode=size',
    '-o',
    `${folder}/loads.fatbin`,
    source,
  ])
  const figures = await figuresOfFolder(folder, target)
  rmSync(folder, { recursive: true })
  return new Map(figures.map(kernel => [kernel.name, kernel]))
}

t.test('loads and waits', { skip: !nvcc && 'nvcc is not installed' }, async t => {
  for (const target of targets) {
    const kernels = await known(target)
    t.match(
      kernels.get('independent'),
      { loads: 8, bytes: 32, inFlight: 8, tensors: 0, local: 0, shared: 0, threads: 256, isLoop: true },
      `${target}: eight loads at once`,
    )
    t.match(kernels.get('chained'), { loads: 1, bytes: 4, inFlight: 1, waits: 1 }, `${target}: one by one`)
    t.match(
      kernels.get('copied'),
      { loads: 4, bytes: 44, inFlight: 8, waits: 1, isLoop: true },
      `${target}: copies of two turns`,
    )
    const multiplied = kernels.get('multiplied')!
    t.match(multiplied, { loads: 2, bytes: 24, tensors: 4 }, `${target}: tensor instructions`)
    t.equal(tensorsOfKiB(multiplied), (4 * 1024) / (24 * 32))
    t.ok(kernels.get('spilled')!.local >= 4 * 32, `${target}: registers are spilled`)
    t.match(figuresTable([multiplied]).split('\n')[1], / 4 +5\.3$/)
  }
})

t.test('occupancy', async t => {
  const kernel = { name: 'linear_mma_bf16', threads: 256, registers: 128, shared: 50_176 }
  t.same(occupancy(kernel, gpus['121f']), { threads: 256, blocks: 2, warps: 16 }, 'by registers and memory')
  t.same(occupancy({ ...kernel, registers: 129 }, gpus['121f']), { threads: 256, blocks: 1, warps: 8 })
  t.same(occupancy({ ...kernel, registers: 64 }, gpus['90a']), { threads: 256, blocks: 4, warps: 32 })
  t.same(occupancy({ ...kernel, registers: 16, shared: 0 }, gpus['121f']), {
    threads: 256,
    blocks: 6,
    warps: 48,
  })
  t.match(occupancy({ name: 'adamw_step', threads: undefined, registers: 16, shared: 0 }, gpus['90a']), {
    threads: 1,
    blocks: 32,
  })
})

t.test('what is worse is named', async t => {
  const budget: Budget = { registers: 64, local: 0, warps: 32, inFlight: 8 }
  const figures = { name: 'a', ...budget } as Figures
  t.same(worse({ a: budget }, [figures]), [])
  t.same(
    worse({ a: budget }, [{ ...figures, registers: 70, inFlight: 9 }]),
    [],
    'registers that cost no warps',
  )
  t.same(worse({ a: budget }, [{ ...figures, local: 8, warps: 24, inFlight: 7 }]), [
    'a: 8 bytes of local memory, not 0',
    'a: 24 warps by 64 registers, not 32 by 64',
    'a: 7 loads in flight, not 8',
  ])
  t.same(worse({ b: budget }, [figures]), ['a has no budget', 'b is gone'])
})

t.test('budgets of some kernels are set beside those of others', async t => {
  const budget: Budget = { registers: 64, local: 0, warps: 32, inFlight: 8 }
  const changed = { ...budget, inFlight: 9 }
  const budgets = budgetsOf([{ name: 'b', ...changed, loads: 1 } as Figures], {
    c: budget,
    b: budget,
    a: budget,
  })
  t.strictSame(Object.entries(budgets), [
    ['a', budget],
    ['b', changed],
    ['c', budget],
  ])
})

/** Kernels with arrays in local memory. */
const withArrays =
  /^(conv_(f32|f16|bf16|f8_e4m3|i8|nvfp4)|expert_linear_\w+|grid_sample_f32|recurrent_f32|unary_double)$/

t.test('no kernel spills', async t => {
  for (const target of targets) {
    const local = Object.entries(budgets[target]).filter(([, budget]) => budget.local > 0)
    const spilled = local.map(([name]) => name).filter(name => !withArrays.test(name))
    t.same(spilled, [], `sm_${target}`)
  }
})

const folder = process.env.DGX_SPARK_FATBINS ?? path.join(root, 'build/cmake')
const noKernels =
  (!existsSync(path.join(folder, 'linear.fatbin')) && `there are no kernels in ${folder}`) ||
  (nvcc !== budgets.nvcc && `budgets are of nvcc ${budgets.nvcc}`)

t.test('no kernel of the build is worse than its budget', { skip: noKernels }, async t => {
  const built = new Map(
    await Promise.all(targets.map(async target => [target, await figuresOfFolder(folder, target)] as const)),
  )
  for (const [target, figures] of built)
    if (!figures.some(({ name }) => name === 'linear_f32')) built.delete(target)
  if (built.size === 0) t.pass('kernels', { skip: `the build is for none of sm_${targets.join(', sm_')}` })
  for (const [target, figures] of built) t.same(worse(budgets[target], figures), [], `sm_${target}`)
  const onGB10 = new Map(built.get('121f')?.map(kernel => [kernel.name, kernel]))
  const page = readFileSync(path.join(root, 'docs/gpu-static.md'), 'utf8')
  const rows = [...page.matchAll(/^\| P\d+ \| `(\w+)` \| [^|]+ \| ([^|]+) \|/gm)]
  t.ok(rows.length > 10, `${rows.length} rows`)
  for (const [, name, now] of onGB10.size > 0 ? rows : []) {
    const { registers, local, warps, loads, waits, inFlight } = onGB10.get(name!)!
    t.equal(now, [registers, local, warps, loads, waits, inFlight].join(' / '), `docs: ${name}`)
  }
})

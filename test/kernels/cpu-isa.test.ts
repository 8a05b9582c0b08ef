// Every instruction set of the machine: the kernel tests again under DGX_SPARK_CPU_ISA, but for the best one, which they run
// with anyway, and how it is chosen.
import { spawn } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { runScript, scriptResult } from '../fixtures/child.js'

const names = ['plain', 'avx2', 'avx512', 'avx512-bf16', 'amx', 'neon', 'neon-bf16', 'neon-i8mm']
const used = `import { requireAddon } from '#lib/native.js'
  console.log(JSON.stringify(requireAddon().cpuIsa()))`

const typescript = new URL('../fixtures/typescript/register.js', import.meta.url).href

/** A test file in a process of its own. */
function runTest(name: string, isa: string): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    const file = path.join(import.meta.dirname, `${name}.test.ts`)
    const env = { ...process.env, DGX_SPARK_CPU_ISA: isa }
    const child = spawn(process.execPath, ['--enable-source-maps', '--import', typescript, file], { env })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', data => {
        output += data
      })
    }
    child.on('error', reject)
    child.on('close', code => resolve({ code, output }))
  })
}

t.test('each instruction set passes the kernel tests', async t => {
  const best = await scriptResult(used, { DGX_SPARK_CPU_ISA: '' })
  for (const isa of names.filter(name => name !== best)) {
    await t.test(isa, async t => {
      if ((await scriptResult(used, { DGX_SPARK_CPU_ISA: isa })) !== isa) {
        t.comment(`this machine has no ${isa}`)
        return
      }
      for (const name of [
        'linear',
        'integer',
        'linear-integer',
        'packed-weight',
        'conv/compact',
        'conv/conv',
        'conv/pointwise-depthwise',
        'conv/winograd',
        'attention',
        'normalizations',
        'reductions',
        'recurrent',
        'dora',
        'dora-merge',
        'dora-golden',
      ]) {
        const { code, output } = await runTest(name, isa)
        t.equal(code, 0, `${name}.test.ts${code === 0 ? '' : `\n${output.slice(-2000)}`}`)
        t.match(output, /^# Subtest|# SKIP/m, `${name}.test.ts ran`)
      }
    })
  }
})

t.test('an instruction set that the machine lacks warns, and the best one is used', async t => {
  const best = await scriptResult(used, { DGX_SPARK_CPU_ISA: '' })
  const foreign = process.arch === 'arm64' ? 'avx2' : 'neon'
  const { stdout, stderr } = await runScript(used, { DGX_SPARK_CPU_ISA: foreign })
  t.equal(JSON.parse(stdout), best)
  t.match(stderr, new RegExp(`SPARK_CONFIG.*DGX_SPARK_CPU_ISA=${foreign}.* ${best} is used`))
})

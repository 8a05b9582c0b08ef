import { spawnSync } from 'node:child_process'
import t from 'tap'
import { readConfig } from '#lib/core/config.js'

t.test('an empty environment gives the defaults', async t => {
  const { config, entries, warnings } = readConfig({})
  t.same(config, {
    enabled: true,
    precision: null,
    backend: 'auto',
    unifiedMemory: true,
    cudaGraphs: true,
    fp4TensorCores: true,
    threads: 0,
    cpuIsa: null,
    weightCache: null,
    clusterHome: null,
    ffmpeg: 'ffmpeg',
    log: 'silent',
  })
  t.ok(entries.every(entry => entry.source === 'default'))
  t.same(warnings, [])
})

t.test('variables win over aliases and say so', async t => {
  const { config, entries } = readConfig({
    DGX_SPARK_PRECISION: 'bf16',
    OPENPILOT_DGX_PRECISION: 'fp8',
    OPENPILOT_DGX_ENABLED: '0',
    CUDA: '1',
    DEBUG: '2',
    DGX_SPARK_THREADS: '3',
  })
  t.match(config, { enabled: false, precision: 'bf16', backend: 'cuda', threads: 3, log: 'debug' })
  const source = (name: string) => entries.find(entry => entry.name === name)?.source
  t.equal(source('precision'), 'DGX_SPARK_PRECISION')
  t.equal(source('enabled'), 'OPENPILOT_DGX_ENABLED')
  t.equal(source('backend'), 'CUDA')
  t.equal(source('log'), 'DEBUG')
})

t.test('fp4 is an alias and case does not matter', async t => {
  t.equal(readConfig({ DGX_SPARK_PRECISION: 'FP4' }).config.precision, 'nvfp4')
  t.equal(readConfig({ OPENPILOT_DGX_PRECISION: ' Fp16 ' }).config.precision, 'fp16')
  t.equal(readConfig({ DGX_SPARK_ENABLED: 'off' }).config.enabled, false)
  t.equal(readConfig({ DGX_SPARK_CUDA_GRAPHS: 'OFF' }).config.cudaGraphs, false)
})

t.test('an invalid value warns with the allowed ones and the next source is used', async t => {
  const { config, warnings } = readConfig({
    DGX_SPARK_PRECISION: 'int3',
    OPENPILOT_DGX_PRECISION: 'fp16',
    DGX_SPARK_THREADS: '-1',
    DGX_SPARK_BACKEND: 'vulkan',
    DGX_SPARK_ENABLED: '2',
    DGX_SPARK_UNIFIED_MEMORY: 'constructor',
    DGX_SPARK_CUDA_GRAPHS: '2',
    DGX_SPARK_LOG: 'loud',
    DGX_SPARK_CPU_ISA: 'mmx',
  })
  t.match(config, { precision: 'fp16', threads: 0, backend: 'auto', enabled: true, unifiedMemory: true })
  t.same(warnings.map(warning => warning.variable).sort(), [
    'DGX_SPARK_BACKEND',
    'DGX_SPARK_CPU_ISA',
    'DGX_SPARK_CUDA_GRAPHS',
    'DGX_SPARK_ENABLED',
    'DGX_SPARK_LOG',
    'DGX_SPARK_PRECISION',
    'DGX_SPARK_THREADS',
    'DGX_SPARK_UNIFIED_MEMORY',
  ])
  t.match(warnings[0]?.message, /DGX_SPARK_ENABLED=2 is invalid; allowed: 0 or 1/)
})

t.test('values of CUDA and DEBUG meant for other programs pass without a warning', async t => {
  const { config, warnings } = readConfig({ CUDA: '/usr/local/cuda', DEBUG: 'express:*' })
  t.match(config, { backend: 'auto', log: 'silent' })
  t.same(warnings, [])
  t.equal(readConfig({ DEBUG: 'express,dgx-spark' }).config.log, 'debug')
})

t.test('OPENPILOT_DISABLE_DGX=1 wins over an ENABLED=1, with a warning', async t => {
  const both = readConfig({ OPENPILOT_DISABLE_DGX: '1', DGX_SPARK_ENABLED: '1' })
  t.equal(both.config.enabled, false)
  t.match(both.warnings, [{ variable: 'OPENPILOT_DISABLE_DGX' }])
  t.same(readConfig({ OPENPILOT_DISABLE_DGX: '1' }).warnings, [])
  t.equal(readConfig({ OPENPILOT_DISABLE_DGX: '0' }).config.enabled, true)
  t.match(readConfig({ OPENPILOT_DISABLE_DGX: 'x' }), { config: { enabled: true }, warnings: [{}] })
})

t.test('getConfig warns once per variable, with a code', async t => {
  const script = `
    import { getConfig } from '#lib/core/config.js'
    process.on('warning', w => console.log(w.name, w.code, w.message))
    getConfig(); getConfig()`
  const { stdout } = spawnSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', script], {
    encoding: 'utf8',
    env: { ...process.env, DGX_SPARK_BACKEND: 'tpu', DGX_SPARK_PRECISION: 'nvfp4' },
  })
  const lines = stdout.trim().split('\n')
  t.equal(lines.length, 2)
  t.match(lines[0], /DgxSparkWarning SPARK_CONFIG DGX_SPARK_BACKEND=tpu is invalid/)
  t.match(lines[1], /DgxSparkWarning SPARK_EXPERIMENTAL/)
})

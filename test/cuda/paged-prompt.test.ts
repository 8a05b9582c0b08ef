// Which kernels take attention over blocks on a GPU: prompts in 16 bits go to tensor cores, against the fake driver.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

/** Changes of a call of 80 rows of one sequence in bf16 whose heads have 64 elements. */
interface Changes {
  lengths?: number[]
  depth?: number
  cacheDtype?: string
  compute?: string
}

/** The kernels of a call but those that write the caches. */
async function launched({
  lengths = [80],
  depth = 64,
  cacheDtype = 'bf16',
  compute = 'bf16',
}: Changes): Promise<string[]> {
  const script = `${scriptHead}
    await addon.openDevice(0)
    const { lengths, depth, cacheDtype, compute } = ${JSON.stringify({ lengths, depth, cacheDtype, compute })}
    const [heads, kvHeads, blockSize, table] = [4, 2, 16, 6]
    const tokens = lengths.reduce((sum, length) => sum + length, 0), blocks = lengths.length * table
    const Cache = { f32: Float32Array, i8: Int8Array, f8_e4m3: Uint8Array }[cacheDtype] ?? Uint16Array
    const cache = () => new Cache(blocks * blockSize * kvHeads * depth)
    const scales = () => new Float32Array(blocks * blockSize * kvHeads)
    const rows = width => new Float32Array(tokens * width * depth)
    await addon.runCuda(0, 'pagedAttention', {
      tokens, heads, kvHeads, depth, blockSize, table, blocks, cacheDtype, compute, sequences: lengths.length, rotary: 0, scale: 1,
      query: rows(heads), key: rows(kvHeads), value: rows(kvHeads), y: rows(heads),
      starts: Int32Array.from([0, ...lengths], (_, i) => lengths.slice(0, i).reduce((sum, length) => sum + length, 0)),
      past: new Int32Array(lengths.length), block: Int32Array.from({ length: blocks }, (_, i) => i),
      keyCache: cache(), valueCache: cache(), ...(cacheDtype === 'i8' && { keyScales: scales(), valueScales: scales() }),
    })
    print(null)`
  const { env, lines } = machine(fakeDriver, integrated)
  await scriptResult(script, env)
  return lines('launch')
    .map(line => line.split(' ')[1]!)
    .filter(name => !name.startsWith('paged_prepare'))
}

t.test('prompts in 16 bits', async t => {
  t.strictSame(await launched({}), ['paged_attention_mma_bf16_bf16_64'])
  t.strictSame(await launched({ depth: 65, compute: 'f16', cacheDtype: 'f16' }), [
    'paged_attention_mma_f16_f16_128',
  ])
  t.strictSame(await launched({ depth: 129 }), ['paged_attention_mma_bf16_bf16_256'])
  for (const cacheDtype of ['f32', 'f8_e4m3', 'i8'])
    t.strictSame(await launched({ cacheDtype }), [`paged_attention_mma_bf16_${cacheDtype}_64`])
  t.strictSame(await launched({ compute: 'f16', cacheDtype: 'f8_e4m3', lengths: [50, 30] }), [
    'paged_attention_mma_f16_f8_e4m3_64',
  ])
})

t.test('all others', async t => {
  const others: [string, Changes, string[]][] = [
    ['few rows', { lengths: [64] }, ['paged_attention_bf16', 'paged_merge_f32']],
    ['few rows of each sequence', { lengths: Array(10).fill(9) }, ['paged_attention_bf16']],
    ['long heads', { depth: 257 }, ['paged_attention_bf16']],
    ['f32', { compute: 'f32' }, ['paged_attention_bf16']],
    ['another cache', { cacheDtype: 'f16' }, ['paged_attention_f16']],
  ]
  for (const [name, changes, kernels] of others) t.strictSame(await launched(changes), kernels, name)
})

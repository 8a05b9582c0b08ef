// fp4-child.ts: a program that tests one way to FP4 tensor cores in its own process, where it may ruin the CUDA context
// or never end, and prints what it found. Arguments: the uuid of the GPU, the way, the milliseconds it may take.
import { requireAddon } from '../native.js'
import type { Fp4Way } from './fp4-test.js'

const [uuid, way, deadline] = process.argv.slice(2)

// For when the process that waits is gone.
setTimeout(() => process.kill(process.pid, 'SIGKILL'), Number(deadline)).unref()

async function test(): Promise<object> {
  try {
    const addon = requireAddon()
    const { reason, devices } = await addon.queryCuda()
    const device = devices.find(each => each.uuid === uuid)
    if (!device) return { untested: reason ?? `CUDA has no device ${uuid} there` }
    return { problem: await addon.testFp4(device.ordinal, way as Fp4Way) }
  } catch (error) {
    return { untested: (error as Error).message }
  }
}

process.stdout.write(`\n${JSON.stringify(await test())}\n`)

// thermal-zones.ts: the temperature of the CPU from Linux's thermal zones.
import { listFolder, readText } from './system-files.js'

/** Types of zones that lie in a processor: Intel's package, those of device trees, AMD's and others by their driver. */
const processorZone = /^(x86_pkg_temp|k10temp|coretemp|(cpu|soc|tctl|package|cluster)[\w.-]*)$/i

/** Zones of the firmware, which do not say what they measure; on a GB10 all of them are in its package. */
const firmwareZone = /^acpitz/i

/** A sensor that is off or broken reports something beyond these, °C. */
const [lowest, highest] = [-40, 150]

/** The hottest zone of the processor below `root`, or else of the firmware, in °C; null without one. */
export function cpuTemperature(root: string): number | null {
  const folder = 'sys/class/thermal'
  const zones = listFolder(root, folder)
    .filter(name => name.startsWith('thermal_zone'))
    .map(name => ({
      type: readText(root, `${folder}/${name}/type`) ?? '',
      celsius: degrees(readText(root, `${folder}/${name}/temp`)),
    }))
  for (const kind of [processorZone, firmwareZone]) {
    const found = zones.flatMap(({ type, celsius }) => (kind.test(type) && celsius !== null ? [celsius] : []))
    if (found.length > 0) return Math.max(...found)
  }
  return null
}

/** °C of a text in thousandths of a degree. */
function degrees(text: string | null): number | null {
  if (!/^-?\d{1,7}$/.test(text ?? '')) return null
  const celsius = Number(text) / 1000
  return celsius >= lowest && celsius <= highest ? celsius : null
}

"""Layouts of drivers that no recording here covers, from 304 to 610, written for these tests."""

from __future__ import annotations

from collector.smi.file import documents_of
from collector.smi.inventory import inventory_of
from collector.smi.readings import readings_of
from telemetry.gap import Gap, reason_of
from tests.collector.smi_logs import logs, read

OLD_TEXT = """\
==============NVSMI LOG==============

Timestamp                       : Mon Mar  4 10:00:00 2013
Driver Version                  : 304.54

Attached GPUs                   : 1
GPU 0000:03:00.0
    Product Name                : Tesla M2090
    Serial Number               : 0324112016833
    GPU UUID                    : GPU-d1dd53b1-e04f-1186-0e9b-b7be45a60c9a
    PCI
        Bus                     : 0x03
        GPU Link Info
            PCIe Generation
                Max             : 2
                Current         : 1
            Link Width
                Max             : 16x
                Current         : 8x
    Fan Speed                   : N/A
    Performance State           : P12
    Memory Usage
        Total                   : 5375 MB
        Used                    : 10 MB
        Free                    : 5365 MB
    Utilization
        Gpu                     : 3 %
        Memory                  : 0 %
    Ecc Mode
        Current                 : Enabled
        Pending                 : Enabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory   : 1
                Register File   : 2
                L1 Cache        : 3
                L2 Cache        : 4
                Texture Memory  : N/A
                Total           : 10
            Double Bit
                Device Memory   : 0
                Total           : 0
        Aggregate
            Single Bit
                Device Memory   : 11
                Total           : 11
            Double Bit
                Device Memory   : 5
                Total           : 5
    Retired Pages
        Single Bit ECC          : 3
        Double Bit ECC          : 4
        Pending                 : Yes
    Temperature
        Gpu                     : 49 C
    Power Readings
        Power Management        : Supported
        Power Draw              : 30.23 W
        Power Limit             : 225.00 W
        Default Power Limit     : 225.00 W
        Enforced Power Limit    : 200.00 W
        Min Power Limit         : 125.00 W
        Max Power Limit         : 225.00 W
    Clocks
        Graphics                : 50 MHz
        SM                      : 101 MHz
        Memory                  : 135 MHz
    Compute Processes
        Process ID              : 4711
            Name                : ./nbody : GPU 0
            Used GPU Memory     : 10 MB
"""


def test_driver_304_in_text() -> None:
    """MB meant MiB, the memory had another name, processes had no type."""
    found = read(OLD_TEXT)
    expected: dict[str, float | str] = {
        "gpu_memory_total_bytes": 5375 * 1048576.0,
        "gpu_memory_used_bytes": 10 * 1048576.0,
        "gpu_temperature_celsius": 49.0,
        "gpu_power_watts": 30.23,
        "gpu_power_limit_watts": 200.0,
        "gpu_power_limit_requested_watts": 225.0,
        "gpu_power_limit_min_watts": 125.0,
        "gpu_ecc_mode": 1.0,
        "gpu_ecc_volatile_corrected_total": 10.0,
        "gpu_ecc_volatile_corrected_dram_total": 1.0,
        "gpu_ecc_volatile_corrected_register_file_total": 2.0,
        "gpu_ecc_volatile_corrected_l1_cache_total": 3.0,
        "gpu_ecc_volatile_corrected_l2_cache_total": 4.0,
        "gpu_ecc_volatile_corrected_texture_memory_total": "not_supported",
        "gpu_ecc_aggregate_uncorrected_dram_total": 5.0,
        "gpu_retired_pages_single_bit": 3.0,
        "gpu_retired_pages_double_bit": 4.0,
        "gpu_retired_pages_pending": 1.0,
        "gpu_performance_state": 12.0,
        "gpu_pcie_link_width": 8.0,
        "gpu_processes": 1.0,
        "gpu_memory_reserved_bytes": "not_supported",
        "gpu_recovery_action": "not_supported",
    }
    assert {name: found[name] for name in expected} == expected


NEW_TEXT = """\
==============NVSMI LOG==============

Timestamp                                              : Fri Sep  4 11:59:44 2026
KMD Version                                            : 610.43.02
CUDA UMD Version                                       : 13.4
Attached GPUs                                          : 1
GPU 00000009:01:00.0
    Product Name                                       : NVIDIA GB300
    GPU UUID                                           : GPU-6d7a3a2c-64b7-49fd-a1b5-cb0a6d3b2ad1
    A Section From The Future
        GPU Current Temp                               : 99 C
    GPU Recovery Action                                : Bus Reset
    Temperature
        Something New                                  : 12 furlongs
        GPU Current Temp                               : 40 C
        GPU Current T.Limit Temp                       : 47 C
        GPU Shutdown T.Limit Temp Specification        : -12 C
        GPU Slowdown T.Limit Temp Specification        : -2 C
        GPU Max Operating T.Limit Temp Specification   : 0 C
        GPU Target Temperature Specification           : 87 C
        Memory Current Temp                            : N/A
    GPU Power Readings
        Average Power Draw                             : 1011.05 W
        Instantaneous Power Draw                       : 1076.00 W
        GPU Ceiling Power Limit
            Current Power Limit                        : 1400.00 W
            Requested Power Limit                      : 1300.00 W
            Default Power Limit                        : 1400.00 W
        GPU Base Power
            Current Base Power                         : 200.00 W
        Min Power Limit                                : 200.00 W
        Max Power Limit                                : 1400.00 W
    Fabric
        State                                          : In Progress
        Health
            Summary                                    : Limited Capacity
            Bandwidth                                  : Degraded
            Route Recovery in progress                 : True
            Route Unhealthy                            : False
    Processes
        GPU instance ID                                : 1
        Compute instance ID                            : 0
        Process ID                                     : 17
            Type                                       : M+C
            Name                                       : trainer
            Used GPU Memory                            : 9 MiB
        Process ID                                     : 18
            Type                                       : G
            Used GPU Memory                            : 1 MiB
"""


def test_driver_610_in_text() -> None:
    """New names for limits and thresholds; what is unknown is passed over."""
    found = read(NEW_TEXT)
    expected: dict[str, float | str] = {
        "gpu_recovery_action": 6.0,
        "gpu_temperature_celsius": 40.0,
        "gpu_thermal_margin_celsius": 47.0,
        "gpu_thermal_margin_shutdown_celsius": -12.0,
        "gpu_thermal_margin_slowdown_celsius": -2.0,
        "gpu_thermal_margin_max_operating_celsius": 0.0,
        "gpu_temperature_target_celsius": 87.0,
        "gpu_power_watts": 1011.05,
        "gpu_power_instant_watts": 1076.0,
        "gpu_power_limit_watts": 1400.0,
        "gpu_power_limit_requested_watts": 1300.0,
        "gpu_power_limit_min_watts": 200.0,
        "gpu_fabric_state": 2.0,
        "gpu_fabric_health": 3.0,
        "gpu_fabric_bandwidth_degraded": 1.0,
        "gpu_fabric_route_recovery": 1.0,
        "gpu_fabric_route_unhealthy": 0.0,
        "gpu_fabric_access_timeout_recovery": "not_supported",
        "gpu_processes": 1.0,
    }
    assert {name: found[name] for name in expected} == expected
    inventory = inventory_of(logs(documents_of(NEW_TEXT, "test"))[0])
    assert (inventory.driver_version, inventory.cuda_version) == ("610.43.02", "13.4")
    assert inventory.gpus[0].pci == "0009:01:00.0"


MIG_TEXT = """\
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        FB Memory Usage
            Total                         : 19968 MiB
            Used                          : 12 MiB
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 50 MiB
    Utilization
        Gpu                               : N/A
    Remapped Rows                         : Insufficient Permissions
    Temperature                           : [GPU requires reset]
    Processes                             : N/A
"""


def test_mig_devices_are_not_the_gpu_and_a_section_speaks_for_its_rows() -> None:
    """No title and no head either: the GPU line is enough."""
    found = read(MIG_TEXT)
    assert found["gpu_memory_used_bytes"] == 50 * 1048576.0
    assert found["gpu_mig_mode"] == 1.0
    assert found["gpu_utilization_ratio"] == "not_supported"
    assert found["gpu_remapped_rows_pending"] == "no_permission"
    assert found["gpu_remap_banks_max"] == "no_permission"
    assert found["gpu_temperature_celsius"] == "device_lost"
    assert found["gpu_processes"] == "not_supported"


XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v99.dtd">
<nvidia_smi_log>
  <gpu id="00000000:18:00.0">
    <processes>
      <process_info><pid>1</pid><type>C</type><process_name>a && b <c> &lt;d</process_name>
        <used_memory>4 MiB</used_memory></process_info>
      <process_info><pid>2</pid><type>G</type><process_name>x</process_name></process_info>
    </processes>
    <temperature><memory_temp>48 C</memory_temp><gpu_temp>41 C</gpu_temp></temperature>
    <new_thing kind="odd"><gpu_temp>99 C</gpu_temp><empty/></new_thing>
    <!-- <fan_speed>99 %</fan_speed> -->
    <clocks_throttle_reasons>N/A</clocks_throttle_reasons>
    <ecc_errors><volatile><sram_correctable>1</sram_correctable>
      <dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
    <gpu_power_readings>
      <average_power_draw>GPU is lost</average_power_draw>
      <instant_power_draw>Insufficient Permissions</instant_power_draw>
      <gpu_ceiling_power_limit><current_power_limit>500.00 W</current_power_limit>
      </gpu_ceiling_power_limit>
    </gpu_power_readings>
    <uuid>GPU-1</uuid><product_name>NVIDIA R&amp;D Board</product_name>
  </gpu>
  <driver_version>615.10</driver_version>
  <attached_gpus>1</attached_gpus>
</nvidia_smi_log>
trailing words <gpu id="00000000:19:00.0"><fan_speed>1 %</fan_speed></gpu>
"""


def test_xml_in_any_order_with_bare_ampersands_comments_and_trailing_words() -> None:
    """A process name broke the XML; the readings do not care."""
    found = read(XML)
    assert found["gpu_temperature_celsius"] == 41.0
    assert found["gpu_memory_temperature_celsius"] == 48.0
    assert found["gpu_fan_speed_ratio"] == "not_supported"
    assert found["gpu_clocks_event_sw_power_cap"] == "not_supported"
    assert found["gpu_ecc_volatile_corrected_sram_total"] == 1.0
    assert found["gpu_ecc_volatile_uncorrected_dram_total"] == 2.0
    assert found["gpu_ecc_volatile_corrected_total"] == "not_supported"
    assert found["gpu_power_watts"] == "device_lost"
    assert found["gpu_power_instant_watts"] == "no_permission"
    assert found["gpu_power_limit_watts"] == 500.0
    assert found["gpu_processes"] == 1.0
    document = logs(documents_of(XML, "test"))[0]
    assert len(document.gpus) == 1
    inventory = inventory_of(document)
    assert inventory.gpus[0].name == "NVIDIA R&D Board"
    assert inventory.driver_version == "615.10"


def test_logs_one_behind_another_are_ticks_in_order() -> None:
    """`nvidia-smi -q -x -l 1 > FILE`."""
    documents = logs(documents_of(XML + XML.replace("41 C", "42 C"), "test"))
    temperatures = [readings_of(document)[0]["gpu_temperature_celsius"] for document in documents]
    assert temperatures == [41.0, 42.0]


def test_a_lost_gpu_is_all_gaps_and_the_others_go_on() -> None:
    """Its only content is "GPU is lost": not even its processes are 0."""
    lost = (
        '<gpu id="00000000:3A:00.0"><product_name>GPU is lost</product_name>'
        "<uuid>GPU is lost</uuid><fan_speed>GPU is lost</fan_speed><processes></processes></gpu>"
    )
    documents = logs(documents_of(XML.replace("</nvidia_smi_log>", lost + "</nvidia_smi_log>"), ""))
    healthy, gone = readings_of(documents[0])
    assert {reason_of(value) for value in gone.values()} == {Gap.DEVICE_LOST}
    assert healthy["gpu_temperature_celsius"] == 41.0
    gpus = inventory_of(documents[0]).gpus
    assert [(gpu.uuid, gpu.name, gpu.present) for gpu in gpus] == [
        ("GPU-1", "NVIDIA R&D Board", True),
        ("pci-0000:3a:00.0", "unknown", False),
    ]


def test_a_gpu_that_could_not_be_opened_is_not_forgotten() -> None:
    """nvidia-smi then prints one line for it, and no log at all."""
    line = (
        "Unable to determine the device handle for GPU0000:18:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )
    (document,) = logs(documents_of(line, "test"))
    (gpu,) = inventory_of(document).gpus
    assert (gpu.pci, gpu.present) == ("0000:18:00.0", False)
    assert {reason_of(value) for value in readings_of(document)[0].values()} == {Gap.DEVICE_LOST}
    both = logs(documents_of(OLD_TEXT + line, "test"))[0]
    assert [gpu.bus_id for gpu in both.gpus] == ["0000:03:00.0", "0000:18:00.0"]


def test_equal_uuids_get_their_pci_address_and_only_they() -> None:
    """Masked for publication."""
    twins = XML.replace(
        "</nvidia_smi_log>",
        '<gpu id="00000000:19:00.0"><uuid>GPU-1</uuid></gpu>'
        '<gpu id="00000000:1A:00.0"><uuid>GPU-2</uuid></gpu></nvidia_smi_log>',
    )
    assert [gpu.uuid for gpu in inventory_of(logs(documents_of(twins, "test"))[0]).gpus] == [
        "GPU-1#0000:18:00.0",
        "GPU-1#0000:19:00.0",
        "GPU-2",
    ]


def test_a_text_that_ends_with_the_head_of_a_gpu_keeps_it() -> None:
    """Its readings are errors, and the GPU before it is whole."""
    (document,) = logs(documents_of(NEW_TEXT + "GPU 00000009:02:00.0\n", "test"))
    whole, begun = readings_of(document)
    assert whole["gpu_processes"] == 1.0
    assert reason_of(begun["gpu_power_watts"]) is Gap.ERROR
    assert document.shortfall().startswith("the log is cut off in the middle of GPU 00000009:02")

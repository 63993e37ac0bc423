/* Sizes and offsets of the binary tables of amdgpu as a compiler lays them out, one a line: revision, field,
 * number. The fields and their types are those of struct gpu_metrics_v1_3 to v1_8 of the kernel's
 * kgd_pp_interface.h; the names are those of collector/amd/gpu_metrics.py. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct head { uint16_t size; uint8_t format, content; };
struct partition6 { uint32_t busy[8]; uint16_t jpeg[32], vcn[4]; uint64_t busy_acc[8]; };
struct partition7 { uint32_t busy[8]; uint16_t jpeg[32], vcn[4]; uint64_t busy_acc[8], limit[8]; };
struct partition8 { uint32_t busy[8]; uint16_t jpeg[40], vcn[4]; uint64_t busy_acc[8], limit[4][8]; };

#define FIRST struct head head; \
    uint16_t temperature_hotspot, temperature_mem, temperature_vrsoc, current_socket_power; \
    uint16_t average_gfx_activity, average_umc_activity
#define ENERGY uint64_t energy_accumulator, system_clock_counter
#define RESIDENCY uint32_t accumulation_counter, prochot, ppt, socket_thm, vr_thm, hbm_thm
#define LINKS uint32_t gfxclk_lock_status; \
    uint16_t pcie_link_width, pcie_link_speed, xgmi_link_width, xgmi_link_speed; \
    uint32_t gfx_activity_acc, mem_activity_acc; \
    uint64_t pcie_bandwidth_acc, pcie_bandwidth_inst, pcie_l0_to_recov_count_acc, pcie_replay_count_acc, \
        pcie_replay_rover_count_acc
#define NAKS uint32_t pcie_nak_sent_count_acc, pcie_nak_rcvd_count_acc
#define XGMI uint64_t xgmi_read_data_acc[8], xgmi_write_data_acc[8]
#define STATUS uint16_t xgmi_link_status[8], padding
#define CLOCKS uint64_t firmware_timestamp; \
    uint16_t gfxclk[8], socclk[4], vclk0[4], dclk0[4], uclk, num_partition

struct v3 {
    struct head head;
    uint16_t temperature_edge, temperature_hotspot, temperature_mem, temperature_vrgfx, temperature_vrsoc,
        temperature_vrmem, average_gfx_activity, average_umc_activity, average_mm_activity, average_socket_power;
    ENERGY;
    uint16_t average[7], gfxclk, socclk, uclk, vclk0, dclk0, vclk1, dclk1;
    uint32_t throttle_status;
    uint16_t fan_speed, pcie_link_width, pcie_link_speed, padding;
    uint32_t gfx_activity_acc, mem_activity_acc;
    uint16_t temperature_hbm[4];
    uint64_t firmware_timestamp;
    uint16_t voltages[3], padding1;
    uint64_t indep_throttle_status;
};
struct v4 { FIRST; uint16_t vcn_activity[4]; ENERGY; uint32_t throttle_status; LINKS; XGMI; CLOCKS; };
struct v5 {
    FIRST; uint16_t vcn_activity[4], jpeg_activity[32]; ENERGY; uint32_t throttle_status; LINKS; NAKS; XGMI; CLOCKS;
};
struct v6 { FIRST; ENERGY; RESIDENCY; LINKS; NAKS; XGMI; CLOCKS; struct partition6 parts[8]; uint32_t other_end; };
struct v7 {
    FIRST; uint64_t mem_max_bandwidth; ENERGY; RESIDENCY; LINKS; NAKS; XGMI; STATUS; CLOCKS;
    struct partition7 parts[8]; uint32_t other_end;
};
struct v8 {
    FIRST; uint64_t mem_max_bandwidth; ENERGY; RESIDENCY; LINKS; NAKS; XGMI; STATUS; CLOCKS;
    struct partition8 parts[8]; uint32_t other_end;
};

#define SIZE(n) printf(#n " size %zu\n", sizeof(struct v##n))
#define AT(n, field) printf(#n " " #field " %zu\n", offsetof(struct v##n, field))
#define PARTS(n) \
    printf(#n " partition %zu\n" #n " record %zu\n", offsetof(struct v##n, parts), sizeof(struct partition##n))
#define SHARED(n) \
    SIZE(n), AT(n, temperature_hotspot), AT(n, energy_accumulator), AT(n, average_umc_activity), AT(n, uclk), AT(n, gfxclk)
#define OF_MI300(n) \
    SHARED(n), AT(n, current_socket_power), AT(n, pcie_replay_count_acc), AT(n, xgmi_write_data_acc), AT(n, xgmi_link_speed)

int main(void) {
    SHARED(3), AT(3, average_socket_power);
    OF_MI300(4), AT(4, vcn_activity);
    OF_MI300(5), AT(5, jpeg_activity), AT(5, pcie_nak_rcvd_count_acc);
    OF_MI300(6), AT(6, hbm_thm), AT(6, num_partition), PARTS(6);
    OF_MI300(7), AT(7, hbm_thm), AT(7, xgmi_link_status), AT(7, num_partition), PARTS(7);
    OF_MI300(8), AT(8, hbm_thm), AT(8, xgmi_link_status), AT(8, num_partition), PARTS(8);
    return 0;
}

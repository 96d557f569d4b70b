locals {
  services_measured = [for name in sort(keys(var.services)) : "${var.name}-${name}"]

  panels = [
    { title = "At work (heartbeats a minute)", metrics = ["Heartbeat"], stat = "Sum" },
    { title = "Behind by (seconds)", metrics = ["ConsumerLagSeconds", "RelayLagSeconds"], stat = "Maximum" },
    { title = "Runs", metrics = ["RunsStarted", "RunsFailed"], stat = "Sum" },
    { title = "Runs looked after", metrics = ["RunsHeld"], stat = "Maximum" },
    { title = "Records and events", metrics = ["RecordsRead", "EventsPublished", "QueueMessages"], stat = "Sum" },
    { title = "Dead letters held", metrics = ["DeadLettersHeld"], stat = "Maximum" },
    { title = "Given up", metrics = ["DeadLetters", "AlertFailures", "DataLossSuspected", "LogLinesLost"], stat = "Sum" },
    { title = "Event loop late by (seconds)", metrics = ["LoopLagSeconds"], stat = "Maximum" },
    { title = "Sessions lost, peers ended", metrics = ["SessionsLost", "PeersEnded"], stat = "Sum" },
  ]
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.name
  dashboard_body = jsonencode({
    widgets = concat(
      [for place, panel in local.panels : {
        type   = "metric"
        x      = (place % 2) * 12
        y      = floor(place / 2) * 6
        width  = 12
        height = 6
        properties = {
          title   = panel.title
          region  = data.aws_region.this.name
          period  = 60
          stat    = panel.stat
          metrics = [for pair in setproduct(panel.metrics, local.services_measured) : ["Interlock", pair[0], "Service", pair[1]]]
        }
      }],
      [{
        type   = "metric"
        x      = 0
        y      = ceil(length(local.panels) / 2) * 6
        width  = 24
        height = 6
        properties = {
          title   = "Messages waiting"
          region  = data.aws_region.this.name
          period  = 60
          stat    = "Maximum"
          metrics = [for name in concat(values(aws_sqs_queue.this)[*].name, values(aws_sqs_queue.dead)[*].name) : ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", name]]
        }
      }],
    )
  })
}
